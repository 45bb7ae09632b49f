//! What may be taken in a minute: token buckets in whole numbers, taken in advance and settled afterwards.
//!
//! A bucket holds a minute's worth and fills evenly. It is kept as a debt that time pays off, in units so small that no
//! rate is rounded: one unit of what is limited is one part for each nanosecond of the period, and every nanosecond pays
//! off as many parts as the limit has units. So nothing drifts, and no refund can fill a bucket beyond its size.

mod bucket;
mod quota;

pub use bucket::{Bucket, Level};
pub use quota::{Exceeded, Limited, Limits, Quota, Reserved};
