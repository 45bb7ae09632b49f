//! How evenly tenants are served.

pub use elasticserve_core::stats::jain;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_is_one_for_equals_and_one_nth_for_a_single_winner() {
        assert_eq!(jain(&[0.5, 0.5, 0.5]), Some(1.0));
        assert_eq!(jain(&[0.5, 0.0, 0.0, 0.0]), Some(0.25));
        // (0.2 + 0.4 + 0.9)² / (3 · (0.04 + 0.16 + 0.81)) = 2.25 / 3.03
        assert!((jain(&[0.2, 0.4, 0.9]).unwrap() - 2.25 / 3.03).abs() < 1e-12);
    }

    #[test]
    fn one_tenant_or_nobody_served_has_no_index() {
        assert_eq!(jain(&[0.5]), None);
        assert_eq!(jain(&[0.0, 0.0]), None);
    }
}
