//! Published beside simulated, cell by cell.

use serde::Serialize;

use super::cases::Case;
use super::column::{Column, Rule};
use super::effects::effects;
use super::published::Published;
use crate::sim::Figures;
use crate::stats::root_mean_square;

/// One figure of one row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cell {
    /// The table.
    #[serde(skip)]
    pub group: &'static str,
    /// The row, with what tells it apart: `saturation/8`.
    pub row: String,
    /// The figure's name.
    pub column: String,
    /// What was measured; `None` for a figure over several rows.
    pub published: Option<f64>,
    /// What the simulation gives; `None` if it has no such figure.
    pub simulated: Option<f64>,
    /// By how much they differ, in the terms of the rule: a share of the published value, or the difference.
    pub error: Option<f64>,
    /// The largest error that holds; `None` where another rule applies.
    pub tolerance: Option<f64>,
    /// Whether the error is within it.
    pub ok: bool,
    /// The rule.
    #[serde(skip)]
    pub rule: Rule,
}

/// All cells of a replay.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// The cells, in the order of the rows.
    pub rows: Vec<Cell>,
    /// Whether all hold.
    pub ok: bool,
}

/// A cell that is missing counts in a loss as if it were so many tolerances off.
const MISSING: f64 = 10.0;

impl Report {
    /// Puts the figures of each case beside what was measured of it.
    #[must_use]
    pub fn new(published: &Published, runs: &[(&Case, &Figures)]) -> Self {
        let mut rows: Vec<Cell> = runs.iter().flat_map(|(case, figures)| cells(case, figures)).collect();
        rows.extend(over_all_tenant_rows(&rows));
        rows.extend(effects(published, runs));
        let ok = rows.iter().all(|cell| cell.ok);
        Self { rows, ok }
    }

    /// The error of each cell that has a published value and a tolerance, in tolerances.
    pub fn residuals(&self) -> impl Iterator<Item = f64> {
        let held =
            self.rows.iter().filter_map(|cell| Some((cell, cell.tolerance?))).filter(|(c, _)| c.published.is_some());
        held.map(|(cell, tolerance)| cell.error.map_or(MISSING, |error| error / tolerance))
    }

    /// The sum of the squares of [`Report::residuals`].
    #[must_use]
    pub fn loss(&self) -> f64 {
        self.residuals().map(|r| r * r).sum()
    }

    /// Cells that are held to something, and those of them that hold.
    #[must_use]
    pub fn held(&self) -> (usize, usize) {
        let held = self.rows.iter().filter(|cell| cell.rule != Rule::Shown);
        (held.clone().filter(|cell| cell.ok).count(), held.count())
    }

    /// The largest error in size of the cells of this name with a tolerance.
    #[must_use]
    pub fn worst(&self, column: Column) -> Option<f64> {
        let name = column.name();
        let errors = self.rows.iter().filter(|c| c.column == name && c.tolerance.is_some());
        errors.filter_map(|c| c.error).map(f64::abs).max_by(f64::total_cmp)
    }
}

fn cells(case: &Case, figures: &Figures) -> Vec<Cell> {
    let cell = |&(column, published): &(Column, f64)| {
        let rule = column.rule(figures.offered(), case.with_tenants());
        held(case.group, case.row.clone(), column.name(), published, column.of(figures), rule)
    };
    case.measured.iter().map(cell).collect()
}

pub(super) fn held(
    group: &'static str,
    row: String,
    column: String,
    published: f64,
    simulated: Option<f64>,
    rule: Rule,
) -> Cell {
    let error = simulated.map(|s| rule.error(published, s));
    let ok = simulated.map_or(rule == Rule::Shown, |s| rule.holds(published, s));
    Cell { group, row, column, published: Some(published), simulated, error, tolerance: rule.tolerance(), ok, rule }
}

/// How far the rows with tenants are off together.
fn over_all_tenant_rows(rows: &[Cell]) -> Vec<Cell> {
    const GROUP: &str = "queue_order_pairs";
    let over = |column: Column, tolerance: f64| {
        let name = column.name();
        let errors: Vec<f64> =
            rows.iter().filter(|c| c.group == GROUP && c.column == name).filter_map(|c| c.error).collect();
        let error = root_mean_square(&errors)?;
        let rule = Rule::Absolute(tolerance);
        Some(Cell {
            group: GROUP,
            row: format!("{GROUP}/all"),
            column: format!("{name}_rms_error"),
            published: None,
            simulated: Some(error),
            error: Some(error),
            tolerance: Some(tolerance),
            ok: rule.holds(0.0, error),
            rule,
        })
    };
    [over(Column::Attainment, 0.05), over(Column::Jain, 0.06)].into_iter().flatten().collect()
}
