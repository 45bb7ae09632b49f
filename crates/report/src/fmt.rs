//! Numbers as people read them. A missing one is a dash.

/// What stands where there is no value.
pub(crate) const MISSING: &str = "–";

/// A whole number with its thousands apart.
pub(crate) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// A share as a percentage.
pub(crate) fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| MISSING.to_owned(), |s| format!("{:.1}%", s * 100.0))
}

/// A count and what is counted: `1 arrival`, `2 arrivals`.
pub(crate) fn counted(n: u32, noun: &str) -> String {
    let plural = if n == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", count(u64::from(n)))
}

/// A count and what share of a whole it is.
pub(crate) fn part(n: u32, whole: u32) -> String {
    if whole == 0 {
        return count(u64::from(n));
    }
    format!("{} ({})", count(u64::from(n)), percent(Some(f64::from(n) / f64::from(whole))))
}

/// A rate with two decimals.
pub(crate) fn rate(value: Option<f64>) -> String {
    value.map_or_else(|| MISSING.to_owned(), |v| format!("{v:.2}"))
}

/// Milliseconds without the unit: enough decimals for three digits, thousands apart.
pub(crate) fn ms(value: Option<f64>) -> String {
    let Some(value) = value else { return MISSING.to_owned() };
    match value {
        0.0 => "0".to_owned(),
        // Rounding to a whole number loses nothing that a reader would use.
        v if v >= 100.0 => count(v.round() as u64),
        v if v >= 10.0 => format!("{v:.1}"),
        v if v >= 1.0 => format!("{v:.2}"),
        v => format!("{v:.3}"),
    }
}

/// A length of time in ms with the unit that fits it.
pub(crate) fn duration(ms: f64) -> String {
    let (value, unit) = if ms >= 1000.0 { (ms / 1000.0, "s") } else { (ms, "ms") };
    let text = match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => trimmed(v, 1),
        v => trimmed(v, 2),
    };
    format!("{text} {unit}")
}

/// A number with at most so many decimals and no trailing zeros.
pub(crate) fn trimmed(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// A name from the data on one line: control characters replaced, at most `most` characters.
pub(crate) fn one_line(name: &str, most: usize) -> String {
    let mut out: String =
        name.chars().take(most).map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect();
    if name.chars().nth(most).is_some() {
        out.pop();
        out.push('…');
    }
    out
}

/// Names that tell runs apart: those that occur twice get their place.
pub(crate) fn labels(names: &[&str]) -> Vec<String> {
    let twice = |name: &str| names.iter().filter(|n| **n == name).count() > 1;
    (1..)
        .zip(names)
        .map(|(place, name)| {
            let shown = one_line(name, 40);
            if twice(name) { format!("{shown} ({place})") } else { shown }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_as_people_write_them() {
        assert_eq!([count(0), count(999), count(1_000), count(1_234_567)], ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([ms(Some(4211.4)), ms(Some(41.25)), ms(Some(0.0123)), ms(None)], ["4,211", "41.2", "0.012", "–"]);
        assert_eq!([duration(750.0), duration(1000.0), duration(12_500.0)], ["750 ms", "1 s", "12.5 s"]);
        assert_eq!([percent(Some(0.16)), percent(None)], ["16.0%", "–"]);
    }

    #[test]
    fn a_name_cannot_steer_a_terminal_or_fill_it() {
        assert_eq!(one_line("a\u{1b}[31mb\n", 40), "a\u{fffd}[31mb\u{fffd}");
        assert_eq!(one_line(&"x".repeat(50), 4), "xxx…");
    }

    #[test]
    fn runs_of_one_name_are_told_apart_by_their_place() {
        assert_eq!(labels(&["load", "gateway", "load"]), ["load (1)", "gateway", "load (3)"]);
    }
}
