//! What users of other gateways have reported, turned into right behaviour. `docs/field-cases.md` says which test stands
//! for which case: these, and many elsewhere.

mod bursts;
mod leaving;
mod page;
mod permits;
mod times;
mod wire;
