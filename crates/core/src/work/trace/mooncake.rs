//! Mooncake's traces: a JSON object a line.

use serde::Deserialize;

use super::{TraceError, TraceRow, line, tokens};
use crate::engine::Prompt;
use crate::time::Span;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    /// Milliseconds.
    timestamp: f64,
    input_length: u32,
    output_length: u32,
    hash_ids: Vec<u64>,
}

/// Reads the rows; time counts from the first of them.
pub(super) fn read(text: &str, limit: usize) -> Result<Vec<TraceRow>, TraceError> {
    let mut start = None;
    text.lines().enumerate().take(limit).map(|(number, text)| row(number, text, &mut start)).collect()
}

fn row(number: usize, text: &str, start: &mut Option<f64>) -> Result<TraceRow, TraceError> {
    let Row { timestamp, input_length, output_length, hash_ids } =
        serde_json::from_str(text).map_err(|error| line(number, error.to_string()))?;
    if !(timestamp >= 0.0 && timestamp.is_finite()) {
        return Err(line(number, format!("timestamp is {timestamp}; it must be 0 ms or more")));
    }
    let start = *start.get_or_insert(timestamp);
    if timestamp < start {
        return Err(line(number, format!("timestamp {timestamp} lies before the first one, {start}")));
    }
    let input = tokens(number, "input_length", input_length)?;
    let output = tokens(number, "output_length", output_length)?;
    let chunks = input.div_ceil(Prompt::CHUNK_TOKENS) as usize;
    if hash_ids.len() != chunks {
        let chunk = Prompt::CHUNK_TOKENS;
        let problem = format!("{} hash_ids, but {input} tokens are {chunks} blocks of {chunk} tokens", hash_ids.len());
        return Err(line(number, problem));
    }
    let at = Span::from_millis_f64(timestamp - start);
    Ok(TraceRow { line: number, at, tenant: None, input, output, blocks: hash_ids })
}
