//! What users of other gateways have reported, turned into right behaviour. `docs/field-cases.md` says which test stands
//! for which case; many of them were held by tests elsewhere already.

mod bursts;
mod leaving;
mod page;
mod permits;
mod times;
mod wire;
