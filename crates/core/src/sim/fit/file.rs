//! Fitted parameters in a profile's file.

use super::{PARAMETERS, Parameter};
use crate::engine::Profile;

/// Why fitted parameters cannot be put into a file.
#[derive(Debug, thiserror::Error)]
#[error("the profile's file has no line '{key} = …' under [{table}]")]
pub struct KeyNotFound {
    table: &'static str,
    key: &'static str,
}

/// The text of a profile's file with its fitted parameters in place of those it has. Everything else stays
/// as it is, comments included.
///
/// # Errors
/// [`KeyNotFound`] if a parameter does not have a line of its own.
pub fn rewrite(text: &str, profile: &Profile) -> Result<String, KeyNotFound> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for parameter in &PARAMETERS {
        let Parameter { table, key, .. } = *parameter;
        let place = place(&lines, table, key).ok_or(KeyNotFound { table, key })?;
        let (_, comment) = lines[place].split_once('#').unwrap_or_default();
        let value = format!("{key} = {}", significant(parameter.get(profile)));
        lines[place] = if comment.is_empty() { value } else { format!("{value:<27} #{comment}") };
    }
    Ok(lines.join("\n") + "\n")
}

fn place(lines: &[String], table: &str, key: &str) -> Option<usize> {
    let start = lines.iter().position(|line| line.trim() == format!("[{table}]"))?;
    let is_key = |line: &&String| line.split_once('=').is_some_and(|(name, _)| name.trim() == key);
    let within = lines[start + 1..].iter().take_while(|line| !line.starts_with('['));
    within.enumerate().find(|(_, line)| is_key(line)).map(|(i, _)| start + 1 + i)
}

/// Five significant digits: more than any measurement supports.
fn significant(value: f64) -> String {
    if value == 0.0 {
        return "0.0".to_owned();
    }
    let decimals = (4.0 - libm::floor(libm::log10(value.abs()))).clamp(1.0, 12.0) as usize;
    let text = format!("{value:.decimals$}");
    let trimmed = text.trim_end_matches('0');
    if trimmed.ends_with('.') { format!("{trimmed}0") } else { trimmed.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = include_str!("../../../../../config/engines/gb10-qwen3-8b-fp8.toml");

    #[test]
    fn a_rewritten_file_holds_the_new_parameters_and_all_else() {
        let mut profile = Profile::from_toml(FILE).unwrap();
        profile.base_ms = 41.234_567;
        profile.kv_ms_per_token = 0.000_271_828;
        profile.attention_ms = 0.0;
        let text = rewrite(FILE, &profile).unwrap();
        let back = Profile::from_toml(&text).unwrap();
        assert_eq!((back.base_ms, back.kv_ms_per_token, back.attention_ms), (41.235, 0.000_271_83, 0.0));
        assert_eq!((back.roof_tokens, back.max_seqs, &back.name), (68.6, 32, &profile.name));
        assert_eq!(text.matches('#').count(), FILE.matches('#').count());
        let error = rewrite("[step]\n", &profile).unwrap_err().to_string();
        assert!(error.contains("base_ms") && error.contains("[step]"), "{error}");
    }
}
