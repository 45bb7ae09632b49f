//! Other weights while requests wait (R30).

use elasticserve_gateway::Why;

use crate::support::backend::{Backend, header};
use crate::support::client::completion;
use crate::support::gateway::{Piped, Sending};
use crate::support::until;

const TRIALS: u32 = 20;
/// Requests of each tenant.
const EACH: usize = 40;

fn text(gold: &str) -> String {
    format!(
        "[[backends]]\nurl = 'http://b:1'\npermits = 1\n[queue]\norder = 'wfq'\n\
         [[tenants]]\nname = 'gold'\n{gold}\n[[tenants]]\nname = 'batch'\n"
    )
}

#[tokio::test(start_paused = true)]
async fn new_weights_hold_from_the_next_decision_on_and_a_wrong_file_leaves_the_old_ones() {
    for trial in 0..TRIALS {
        let weight = 2 + trial % 4;
        let (mut gateway, mut backends, _dial, file) = Piped::reloading(&["b:1"], &text("weight = 1"));
        let mut sendings = Vec::new();
        for n in 0..2 * EACH {
            sendings.push(send(&mut gateway, if n % 2 == 0 { "gold" } else { "batch" }));
        }
        until("all but one wait", || gateway.queued() == 2 * EACH - 1).await;
        let backend = &mut backends[0];
        // What the engine works on was decided before.
        assert!((5..=7).contains(&serve(backend, 12).await), "trial {trial}: equal weights");
        *file.lock().unwrap() = text("wieght = 9");
        gateway.service.reload(Why::Signal).unwrap_err();
        assert!((3..=5).contains(&serve(backend, 8).await), "trial {trial}: a wrong file");
        *file.lock().unwrap() = text(&format!("weight = {weight}"));
        gateway.service.reload(Why::Signal).unwrap();
        let gold = serve(backend, 4 * (weight + 1)).await;
        assert!(gold.abs_diff(4 * weight) <= 1, "trial {trial}: {gold} of {} by weight {weight}", 4 * (weight + 1));
        serve(backend, 2 * EACH as u32 - 20 - 4 * (weight + 1)).await;
        for sending in sendings {
            let mut answer = sending.answer().await;
            assert_eq!((answer.status.as_u16(), answer.rest().await.1), (200, true), "trial {trial}");
        }
        gateway.service.audit().unwrap();
    }
}

fn send(gateway: &mut Piped, tenant: &str) -> Sending {
    let mut request = completion("");
    for name in ["x-elasticserve-tenant", "x-request-id"] {
        request.headers_mut().insert(name, tenant.parse().unwrap());
    }
    gateway.send(request)
}

/// Answers so many requests one after the other; how many of them were of the first tenant.
async fn serve(backend: &mut Backend, count: u32) -> u32 {
    let mut gold = 0;
    for _ in 0..count {
        let call = backend.call().await;
        gold += u32::from(header(&call.head.headers, "x-request-id") == Some("gold"));
        call.json("{}");
    }
    gold
}
