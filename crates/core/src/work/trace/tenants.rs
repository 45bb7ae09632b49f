//! Arrivals of several tenants, in CSV.

use super::{TraceError, TraceRow, csv, line, tokens_field};
use crate::time::Span;

pub(super) const HEADER: &str = "i,arrival_s,tenant,input_tokens,output_tokens";

/// Reads the rows; time counts from the start of the run.
pub(super) fn read(text: &str, limit: usize) -> Result<Vec<TraceRow>, TraceError> {
    let mut rows = Vec::new();
    for row in csv(text, HEADER)?.take(limit) {
        let (number, [index, arrival, tenant, input, output]) = row?;
        if index.parse() != Ok(rows.len()) {
            return Err(line(number, format!("i is '{index}' where {} belongs", rows.len())));
        }
        let at = arrival.parse::<f64>().ok().filter(|at| *at >= 0.0 && at.is_finite());
        let Some(at) = at else {
            return Err(line(number, format!("arrival_s is '{arrival}', not a number of seconds from 0 on")));
        };
        if tenant.is_empty() {
            return Err(line(number, "tenant is empty; every row needs the name of one".into()));
        }
        rows.push(TraceRow {
            line: number,
            at: Span::from_secs_f64(at),
            tenant: Some(tenant.to_owned()),
            input: tokens_field(number, "input_tokens", input)?,
            output: tokens_field(number, "output_tokens", output)?,
            blocks: Vec::new(),
        });
    }
    Ok(rows)
}
