//! Attainment against fairness: a line for each family of policies.

use super::{Axis, Picture, Plot, Point, Series, Shape};
use crate::front::{FrontLine, FrontPicture};
use crate::unit::Unit;

/// The picture of a workload's fronts.
pub(crate) fn front(front: &FrontPicture) -> Picture {
    let point = |p: &crate::front::FrontPoint| Point::new(p.jain, p.attainment).named(&p.name);
    let series = |line: &FrontLine| Series::new(&line.name, Shape::Joined, line.points.iter().map(point).collect());
    Plot {
        title: format!("Attainment against fairness: {}", front.workload),
        x: Axis::new("Jain's index over the tenants' attainments", Unit::Plain(3)),
        y: Axis::new("good answers of those offered", Unit::Share),
        series: front.lines.iter().map(series).collect(),
        references: Vec::new(),
        note: "Each mark is a policy, the mean over the traces. Further right is fairer to the tenants, higher is \
               more good answers; the axes do not start at 0."
            .to_owned(),
    }
    .draw()
}
