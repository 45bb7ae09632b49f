//! Weighted least squares with coefficients that cannot be negative, and a bend whose place is sought.
//!
//! Given the place of the bend the model is linear. Between two neighbouring values of the bent variable the loss has
//! one valley (Hudson 1966, "Fitting segmented curves whose join points have to be estimated"), so each such interval is
//! searched by golden section and the best of all is taken.

/// The coefficients of a step's time, and of what lies around it, in ms.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub(super) struct Coefficients {
    /// In [`Column`]'s order.
    pub(super) values: [f64; COLUMNS],
    /// Tokens at which the bend lies.
    pub(super) roof: f64,
}

/// What a coefficient is multiplied with.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Column {
    /// 1 where a client waits for a first token: what lies around the engine.
    Around,
    /// 1.
    Base,
    /// KV tokens.
    Kv,
    /// Sequences that decode.
    Sequence,
    /// 1 where a prompt is computed.
    Prefill,
    /// Tokens beyond the bend, where a prompt is computed.
    Token,
    /// (Prompt tokens / 1000)².
    Attention,
}

pub(super) const COLUMNS: usize = 7;

/// One equation: a measured value and what it is made of.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(super) struct Equation {
    /// The factors that do not depend on the bend; that of [`Column::Token`] is unused.
    pub(super) factors: [f64; COLUMNS],
    /// Prompt tokens and decoding sequences together, where a prompt is computed.
    pub(super) bent: Option<f64>,
    pub(super) measured: f64,
    /// Its standard error.
    pub(super) error: f64,
}

impl Equation {
    fn row(&self, roof: f64) -> [f64; COLUMNS] {
        let mut row = self.factors;
        row[Column::Token as usize] = self.bent.map_or(0.0, |tokens| (tokens - roof).max(0.0));
        row
    }

    /// What the coefficients say.
    pub(super) fn value(&self, found: &Coefficients) -> f64 {
        self.row(found.roof).iter().zip(&found.values).map(|(factor, value)| factor * value).sum()
    }
}

/// Golden sections of an interval: its length shrinks to a thousandth.
const SECTIONS: usize = 15;
const GOLDEN: f64 = 0.618_033_988_749_894_9;

/// The coefficients with the least weighted squares, none of them negative; those that are not `used` are 0. The bend is
/// sought up to the last but one of `knots`, which ascend: beyond it nothing but the last would know of the slope.
pub(super) fn solve(equations: &[Equation], used: [bool; COLUMNS], knots: &[f64]) -> Coefficients {
    let at = |roof: f64| {
        let (values, loss) = linear(equations, used, roof);
        (loss, Coefficients { values, roof })
    };
    if !used[Column::Token as usize] || knots.len() < 3 {
        return at(0.0).1;
    }
    let knots: Vec<f64> = std::iter::once(0.0).chain(knots[..knots.len() - 1].iter().copied()).collect();
    let mut best = at(0.0);
    for pair in knots.windows(2) {
        let found = valley(pair[0], pair[1], at);
        if found.0 < best.0 {
            best = found;
        }
    }
    best.1
}

/// The least of a function with one valley.
fn valley(mut low: f64, mut high: f64, at: impl Fn(f64) -> (f64, Coefficients)) -> (f64, Coefficients) {
    let inner = |low: f64, high: f64| (high - GOLDEN * (high - low), low + GOLDEN * (high - low));
    let (mut left, mut right) = (at(inner(low, high).0), at(inner(low, high).1));
    let mut best = if right.0 < left.0 { right } else { left };
    for _ in 0..SECTIONS {
        if left.0 <= right.0 {
            high = right.1.roof;
            right = left;
            left = at(inner(low, high).0);
        } else {
            low = left.1.roof;
            left = right;
            right = at(inner(low, high).1);
        }
        for found in [left, right] {
            if found.0 < best.0 {
                best = found;
            }
        }
    }
    best
}

/// The coefficients and their loss where the bend lies at `roof`.
fn linear(equations: &[Equation], used: [bool; COLUMNS], roof: f64) -> ([f64; COLUMNS], f64) {
    let mut matrix = [[0.0; COLUMNS]; COLUMNS];
    let mut right = [0.0; COLUMNS];
    let mut squares = 0.0;
    for equation in equations {
        let (row, weight) = (equation.row(roof), 1.0 / (equation.error * equation.error));
        for (line, (factor, sum)) in matrix.iter_mut().zip(row.iter().zip(&mut right)) {
            for (cell, other) in line.iter_mut().zip(&row) {
                *cell += weight * factor * other;
            }
            *sum += weight * factor * equation.measured;
        }
        squares += weight * equation.measured * equation.measured;
    }
    let mut best = ([0.0; COLUMNS], squares);
    let allowed = (0..COLUMNS).filter(|i| used[*i]).fold(0u32, |set, i| set | 1 << i);
    // All of them first; only where one comes out negative every smaller set is tried too. The least squares without
    // negative coefficients are those of one of the sets.
    if let Some(values) = normal(&matrix, &right, allowed) {
        let loss = squares - dot(&values, &right);
        if values.iter().all(|v| *v >= 0.0) {
            return (values, loss);
        }
    }
    for set in (1..1u32 << COLUMNS).filter(|set| set & !allowed == 0 && *set != allowed) {
        let Some(values) = normal(&matrix, &right, set).filter(|values| values.iter().all(|v| *v >= 0.0)) else {
            continue;
        };
        let loss = squares - dot(&values, &right);
        if loss < best.1 {
            best = (values, loss);
        }
    }
    best
}

fn dot(a: &[f64; COLUMNS], b: &[f64; COLUMNS]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

/// Solves the normal equations of a set of columns, scaled to a diagonal of 1, by elimination with pivots; `None` if two
/// of the columns say the same.
fn normal(matrix: &[[f64; COLUMNS]; COLUMNS], right: &[f64; COLUMNS], set: u32) -> Option<[f64; COLUMNS]> {
    let columns: Vec<usize> = (0..COLUMNS).filter(|i| set & 1 << i != 0).collect();
    let n = columns.len();
    let scale: Vec<f64> = columns.iter().map(|i| matrix[*i][*i].sqrt()).collect();
    if scale.contains(&0.0) {
        return None;
    }
    let mut left = [[0.0; COLUMNS]; COLUMNS];
    let mut sums = [0.0; COLUMNS];
    for (row, i) in columns.iter().enumerate() {
        for (column, j) in columns.iter().enumerate() {
            left[row][column] = matrix[*i][*j] / (scale[row] * scale[column]);
        }
        sums[row] = right[*i] / scale[row];
    }
    for column in 0..n {
        let pivot = (column..n).max_by(|a, b| left[*a][column].abs().total_cmp(&left[*b][column].abs()))?;
        left.swap(column, pivot);
        sums.swap(column, pivot);
        if left[column][column].abs() < 1e-11 {
            return None;
        }
        for row in column + 1..n {
            let factor = left[row][column] / left[column][column];
            let above = left[column];
            for (cell, above) in left[row].iter_mut().zip(&above) {
                *cell -= factor * above;
            }
            sums[row] -= factor * sums[column];
        }
    }
    let mut values = [0.0; COLUMNS];
    for row in (0..n).rev() {
        let known: f64 = (row + 1..n).map(|k| left[row][k] * values[columns[k]] * scale[k]).sum();
        values[columns[row]] = (sums[row] - known) / left[row][row] / scale[row];
    }
    Some(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRUE: Coefficients = Coefficients { values: [13.0, 40.0, 0.0003, 0.2, 1.5, 0.07, 6.0], roof: 70.0 };
    const ALL: [bool; COLUMNS] = [true; COLUMNS];
    const KNOTS: [f64; 9] = [16.0, 32.0, 64.0, 96.0, 128.0, 256.0, 512.0, 1024.0, 2048.0];

    fn first(tokens: f64) -> Equation {
        let p = tokens / 1000.0;
        Equation { factors: [1.0, 1.0, 0.0, 0.0, 1.0, 0.0, p * p], bent: Some(tokens), measured: 0.0, error: 0.1 }
    }

    fn step(kv: f64, prefill: f64, decoding: f64) -> Equation {
        let p = prefill / 1000.0;
        let holds = if prefill > 0.0 { 1.0 } else { 0.0 };
        let bent = (prefill > 0.0).then_some(prefill + decoding);
        Equation { factors: [0.0, 1.0, kv, decoding, holds, 0.0, p * p], bent, measured: 0.0, error: 0.1 }
    }

    fn measured(mut equations: Vec<Equation>, truth: &Coefficients) -> Vec<Equation> {
        for equation in &mut equations {
            equation.measured = equation.value(truth);
        }
        equations
    }

    fn grid() -> Vec<Equation> {
        let firsts = KNOTS.map(first);
        let steps = [
            (20.0, 0.0, 1.0),
            (500.0, 0.0, 1.0),
            (8000.0, 0.0, 8.0),
            (16_000.0, 0.0, 8.0),
            (300.0, 16.0, 1.0),
            (300.0, 512.0, 4.0),
        ]
        .map(|(kv, p, d)| step(kv, p, d));
        firsts.into_iter().chain(steps).collect()
    }

    #[test]
    fn coefficients_and_bend_are_found_again() {
        let found = solve(&measured(grid(), &TRUE), ALL, &KNOTS);
        for (value, truth) in found.values.iter().zip(&TRUE.values) {
            assert!((value / truth - 1.0).abs() < 0.005, "{found:?}");
        }
        assert!((found.roof / TRUE.roof - 1.0).abs() < 0.005, "{found:?}");
    }

    #[test]
    fn a_coefficient_that_would_be_negative_is_none_and_the_others_take_its_part() {
        // A measured fall with KV tokens: the best that is not negative is the weighted mean.
        let mut equations = vec![step(0.0, 0.0, 1.0), step(1000.0, 0.0, 1.0)];
        (equations[0].measured, equations[1].measured) = (42.0, 40.0);
        equations[1].error = 0.1 / 3.0f64.sqrt();
        // No two of these say the same, so all of them have a solution, with a negative one.
        let mut used = [false; COLUMNS];
        (used[Column::Base as usize], used[Column::Kv as usize]) = (true, true);
        let found = solve(&equations, used, &[]);
        assert_eq!(found.values[Column::Kv as usize], 0.0);
        assert!((found.values[Column::Base as usize] - 40.5).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn a_coefficient_that_is_not_used_is_none() {
        let mut used = ALL;
        used[Column::Attention as usize] = false;
        let found = solve(&measured(grid(), &TRUE), used, &KNOTS);
        assert_eq!(found.values[Column::Attention as usize], 0.0);
        assert!(found.values[Column::Token as usize] > TRUE.values[Column::Token as usize]);
    }
}
