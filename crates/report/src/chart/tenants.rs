//! The attainment of each tenant in each run.

use elasticserve_core::stats::proportion::wilson;

use super::{Bar, BarGroup, Bars, Drawn, Picture};
use crate::fmt;
use crate::unit::Unit;

/// The two-sided 95 % point of the normal distribution.
const DEVIATIONS: f64 = 1.959_963_984_540_054;

/// A bar for each tenant in each run; `None` where there are fewer than two tenants.
pub(crate) fn tenants(runs: &[Drawn]) -> Option<Picture> {
    let mut names: Vec<&str> = Vec::new();
    for tenant in runs.iter().flat_map(|d| &d.summary.tenants) {
        if !names.contains(&tenant.name.as_str()) {
            names.push(&tenant.name);
        }
    }
    let bar = |drawn: &Drawn, name: &str| {
        let figures = &drawn.summary.tenants.iter().find(|t| t.name == name)?.figures;
        let n = f64::from(figures.planned);
        let value = figures.attainment?;
        Some(Bar { value, ends: Some(wilson(value, n, DEVIATIONS)), n: u64::from(figures.planned) })
    };
    let group =
        |name: &&str| BarGroup { name: fmt::one_line(name, 40), bars: runs.iter().map(|d| bar(d, name)).collect() };
    (names.len() > 1).then(|| {
        Bars {
            title: "Attainment of each tenant".to_owned(),
            label: "good answers of those planned".to_owned(),
            unit: Unit::Share,
            series: runs.iter().map(|d| d.label.clone()).collect(),
            groups: names.iter().map(group).collect(),
            reference: None,
            note: "The thin line is the 95% interval of each share (Wilson's), as if arrivals were independent."
                .to_owned(),
        }
        .draw()
    })
}
