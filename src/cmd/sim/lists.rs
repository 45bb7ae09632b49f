//! Values of flags that take several: lists, ranges, tenants.

use std::num::NonZeroU32;
use std::str::FromStr;

use elasticserve_core::slo::Slo;
use elasticserve_core::time::Span;
use elasticserve_core::work::{Lengths, PlanTenant};

/// The most values of one list.
const MAX_VALUES: usize = 1000;

/// Rates: `4,8,16`, or `4:24:2` for every second one from 4 to 24; both may be mixed.
pub(crate) fn parse_rates(text: &str) -> Result<Vec<f64>, String> {
    let mut rates = Vec::new();
    for part in text.split(',') {
        let numbers: Result<Vec<f64>, _> = part.split(':').map(|n| n.trim().parse::<f64>()).collect();
        let form = || format!("'{part}' is neither a rate nor LOW:HIGH:STEP, such as 4:24:2");
        let numbers = numbers.map_err(|_| form())?;
        if numbers.iter().any(|n| !(*n > 0.0 && n.is_finite())) {
            return Err(format!("'{part}': rates and steps are above 0"));
        }
        match numbers.as_slice() {
            [rate] => rates.push(*rate),
            [low, high, step] if low <= high => {
                // A millionth of a step makes up for what floats lose on the way.
                let count = ((high - low) / step + 1e-6).floor();
                if count >= MAX_VALUES as f64 {
                    return Err(format!("'{part}' has more than {MAX_VALUES} rates"));
                }
                rates.extend((0..=count as u32).map(|i| rounded(low + f64::from(i) * step)));
            }
            _ => return Err(form()),
        }
    }
    rates.sort_by(f64::total_cmp);
    rates.dedup();
    if rates.len() > MAX_VALUES { Err(format!("more than {MAX_VALUES} rates")) } else { Ok(rates) }
}

/// Without what floats add: 8.4 and not 8.399999999999999.
fn rounded(rate: f64) -> f64 {
    (rate * 1e9).round() / 1e9
}

/// A queue budget: a time, or `none`.
pub(super) fn parse_budget(text: &str) -> Result<Option<Span>, String> {
    if text == "none" { Ok(None) } else { Span::from_str(text).map(Some).map_err(|e| format!("none, or a time: {e}")) }
}

/// A length, or the ends of a uniform distribution: `256`, `64:960`.
pub(super) fn parse_lengths(text: &str) -> Result<Lengths, String> {
    let tokens = |n: &str| n.trim().parse::<u32>().ok().filter(|n| *n > 0);
    let ends = match text.split_once(':') {
        None => tokens(text).map(|n| (n, n)),
        Some((low, high)) => tokens(low).zip(tokens(high)).filter(|(low, high)| low <= high),
    };
    let (low, high) = ends.ok_or("write TOKENS or LOW:HIGH, such as 256 or 64:960")?;
    Ok(Lengths { low, high })
}

/// A tenant with its weight.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tenant {
    pub(super) plan: PlanTenant,
    pub(super) weight: NonZeroU32,
}

/// A tenant: `NAME:share=0.2,weight=4,ttft=600,tpot=100,e2el=5000`, limits in ms.
pub(super) fn parse_tenant(text: &str) -> Result<Tenant, String> {
    let (name, rest) = text.split_once(':').ok_or("write NAME:share=…,weight=…,ttft=MS,tpot=MS,e2el=MS")?;
    if name.trim().is_empty() {
        return Err("the tenant's name is empty".to_owned());
    }
    let mut slo = Slo::default();
    let (mut share, mut weight) = (1.0, NonZeroU32::MIN);
    for pair in rest.split(',').filter(|pair| !pair.trim().is_empty()) {
        let (key, value) = pair.split_once('=').ok_or_else(|| format!("'{pair}' is not KEY=VALUE"))?;
        let number = || value.trim().parse::<f64>().ok().filter(|n| *n > 0.0 && n.is_finite());
        let above = || number().ok_or_else(|| format!("{key} is a number above 0, not '{value}'"));
        match key.trim() {
            "share" => share = above()?,
            "weight" => {
                weight = value.trim().parse().map_err(|_| format!("weight is a whole number from 1, not '{value}'"))?;
            }
            "ttft" => slo.ttft = Some(Span::from_millis_f64(above()?)),
            "tpot" => slo.tpot = Some(Span::from_millis_f64(above()?)),
            "e2el" | "e2e" => slo.e2e = Some(Span::from_millis_f64(above()?)),
            other => return Err(format!("'{other}' is none of share, weight, ttft, tpot, e2el")),
        }
    }
    Ok(Tenant { plan: PlanTenant::new(name.trim().to_owned(), share, slo), weight })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_values_and_ranges_with_both_ends() {
        assert_eq!(parse_rates("4:24:4").unwrap(), [4.0, 8.0, 12.0, 16.0, 20.0, 24.0]);
        assert_eq!(parse_rates("16,0.5:1.5:0.5,4").unwrap(), [0.5, 1.0, 1.5, 4.0, 16.0]);
        assert_eq!(parse_rates("0.1:0.4:0.1").unwrap(), [0.1, 0.2, 0.3, 0.4]);
        assert_eq!(parse_rates("8.2:8.4:0.05").unwrap(), [8.2, 8.25, 8.3, 8.35, 8.4]);
        for wrong in ["4:24", "x", "0", "-1", "24:4:2", "1:2:0", "1:1e9:0.1"] {
            assert!(parse_rates(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_tenant_has_a_share_a_weight_and_limits() {
        let tenant = parse_tenant("gold:share=0.2,weight=4,ttft=600,e2el=5000").unwrap();
        let slo = Slo { ttft: Some(Span::from_millis(600)), tpot: None, e2e: Some(Span::from_secs(5)) };
        assert_eq!(tenant.plan, PlanTenant::new("gold", 0.2, slo));
        assert_eq!(tenant.weight.get(), 4);
        for wrong in ["gold", ":share=1", "gold:weight=0.5", "gold:share=-1", "gold:speed=3"] {
            assert!(parse_tenant(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn lengths_are_one_number_or_the_two_ends() {
        assert_eq!(parse_lengths("64:960").unwrap(), Lengths { low: 64, high: 960 });
        assert_eq!(parse_lengths("256").unwrap(), Lengths::fixed(256));
        assert!(["0", "9:3", "a"].iter().all(|wrong| parse_lengths(wrong).is_err()));
        assert_eq!((parse_budget("none"), parse_budget("750ms")), (Ok(None), Ok(Some(Span::from_millis(750)))));
        assert!(parse_budget("750").is_err());
    }
}
