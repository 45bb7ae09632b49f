//! Values that can be written in more than one way.

use std::fmt;
use std::marker::PhantomData;

use elasticserve_core::time::Span;
use elasticserve_core::work::{Length, Lengths, Think};
use serde::de::value::{I64Deserializer, MapAccessDeserializer, StringDeserializer};
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// A time with its unit: `"750ms"`, `"4s"`, `"2m"`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Time(pub(super) Span);

/// A length: `256`, `[64, 960]`, or a log-normal distribution as a table.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(super) enum RawLength {
    Uniform(u32, u32),
    LogNormal(RawLogNormal),
}

/// Either `median` and `sigma`, or `mean` and `sd`.
#[derive(Copy, Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawLogNormal {
    median: Option<f64>,
    sigma: Option<f64>,
    mean: Option<f64>,
    sd: Option<f64>,
    min: Option<u32>,
    max: u32,
}

/// Turns of a conversation: `4`, or `[2, 8]`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct RawTurns(pub(super) Lengths);

/// A think time: `"2s"`, `["1s", "5s"]`, or `{ mean = "3s" }`, which is exponential.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct RawThink(pub(super) Think);

impl RawLength {
    /// The distribution, or what is wrong with it.
    pub(super) fn length(self) -> Result<Length, String> {
        let log_normal = match self {
            Self::Uniform(low, high) => return Ok(Length::Uniform(Lengths { low, high })),
            Self::LogNormal(log_normal) => log_normal,
        };
        let RawLogNormal { median, sigma, mean, sd, min, max } = log_normal;
        let bounds = Lengths { low: min.unwrap_or(1), high: max };
        match (median, sigma, mean, sd) {
            (Some(median), Some(sigma), None, None) => Ok(Length::LogNormal { median, sigma, bounds }),
            (None, None, Some(mean), Some(sd)) => Ok(Length::log_normal_of_mean(mean, sd, bounds)),
            _ => Err("a log-normal length needs either median and sigma, or mean and sd".to_owned()),
        }
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map(Self).map_err(D::Error::custom)
    }
}

impl<'de> Deserialize<'de> for RawLength {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Forms::<u32, RawLogNormal, _> {
            expecting: "256, [64, 960] or { median = 256, sigma = 0.8, max = 4096 }",
            ends: |low, high| Self::Uniform(low, high),
            table: |table| Self::LogNormal(table),
            marker: PhantomData,
        })
    }
}

impl<'de> Deserialize<'de> for RawTurns {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Forms::<u32, NoTable, _> {
            expecting: "4 or [2, 8]",
            ends: |low, high| Self(Lengths { low, high }),
            table: |never| match never {},
            marker: PhantomData,
        })
    }
}

/// The mean of an exponential distribution.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawMean {
    mean: Time,
}

impl<'de> Deserialize<'de> for RawThink {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Forms::<Time, RawMean, _> {
            expecting: "\"2s\", [\"1s\", \"5s\"] or { mean = \"3s\" }",
            ends: |low: Time, high: Time| Self(Think::Uniform(low.0, high.0)),
            table: |table: RawMean| Self(Think::Exponential(table.mean.0)),
            marker: PhantomData,
        })
    }
}

/// No table is allowed.
enum NoTable {}

impl<'de> Deserialize<'de> for NoTable {
    fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        Err(D::Error::custom("a table does not belong here"))
    }
}

/// One value, two as the ends of a range, or a table.
struct Forms<V, M, T> {
    expecting: &'static str,
    ends: fn(V, V) -> T,
    table: fn(M) -> T,
    marker: PhantomData<(V, M)>,
}

impl<'de, V: Deserialize<'de> + Copy, M: Deserialize<'de>, T> Visitor<'de> for Forms<V, M, T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expecting)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<T, E> {
        let value = V::deserialize(I64Deserializer::<E>::new(value))?;
        Ok((self.ends)(value, value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<T, E> {
        let value = V::deserialize(StringDeserializer::<E>::new(value.to_owned()))?;
        Ok((self.ends)(value, value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<T, A::Error> {
        let missing = |place| A::Error::invalid_length(place, &self.expecting);
        let low: V = seq.next_element()?.ok_or_else(|| missing(0))?;
        let high: V = seq.next_element()?.ok_or_else(|| missing(1))?;
        if seq.next_element::<V>()?.is_some() {
            return Err(missing(3));
        }
        Ok((self.ends)(low, high))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        M::deserialize(MapAccessDeserializer::new(map)).map(self.table)
    }
}
