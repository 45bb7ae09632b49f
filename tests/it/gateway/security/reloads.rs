//! Keys and limits over a reload.

use elasticserve_gateway::Why;

use super::{BATCH, GOLD, key, with};
use crate::support::backend::header;
use crate::support::client::completion;
use crate::support::gateway::Piped;

/// A tenant of two requests a minute, known by keys, behind `before` others.
fn text(before: &[&str], keys: &[(&str, &str)]) -> String {
    let others: String = before.iter().map(|name| format!("[[tenants]]\nname = '{name}'\n")).collect();
    let entry =
        |(id, text): &(&str, &str)| format!("[[tenants.keys]]\nid = '{id}'\nsha256 = '{}'\n", key(id, text).sha256);
    let keys: String = keys.iter().map(entry).collect();
    format!(
        "[[backends]]\nurl = 'http://a'\npermits = 4\n{others}[[tenants]]\nname = 'gold'\nrequests_per_minute = 2\n{keys}"
    )
}

/// The status and the message of a refusal.
async fn refused(gateway: &mut Piped, key: &str) -> (u16, String) {
    let mut answer = gateway.client().await.send(with(completion(""), &[("x-api-key", key)])).await.unwrap();
    let error = answer.json().await["error"].clone();
    (answer.status.as_u16(), error["message"].as_str().unwrap().to_owned())
}

#[tokio::test(start_paused = true)]
async fn a_key_ends_with_the_reload_that_takes_it_out_and_no_reload_fills_a_bucket() {
    let (mut gateway, mut backends, _dial, config) = Piped::reloading(&["a"], &text(&[], &[("first", GOLD)]));
    let reload = |gateway: &Piped, text: String| {
        *config.lock().unwrap() = text;
        gateway.service.reload(Why::Admin).unwrap();
    };
    for (before, left) in [(vec![], "1"), (vec!["new", "newer"], "0")] {
        reload(&gateway, text(&before, &[("first", GOLD)]));
        let client = gateway.client().await;
        let sending = client.send(with(completion(""), &[("x-api-key", GOLD)]));
        let (answer, ()) = tokio::join!(sending, async { backends[0].call().await.stream().finish() });
        let headers = answer.unwrap().headers;
        assert_eq!(header(&headers, "x-ratelimit-remaining-requests"), Some(left));
    }
    let (status, message) = refused(&mut gateway, GOLD).await;
    assert!(status == 429 && message.contains("tenant 'gold'"), "{message}");
    reload(&gateway, text(&["new"], &[("second", BATCH)]));
    assert_eq!(refused(&mut gateway, GOLD).await.0, 401);
    let (status, message) = refused(&mut gateway, BATCH).await;
    assert!(status == 429 && message.contains("tenant 'gold'"), "{message}");
    // What cannot be used changes nothing.
    *config.lock().unwrap() = text(&[], &[("second", BATCH), ("second", GOLD)]);
    assert!(gateway.service.reload(Why::Admin).unwrap_err().to_string().contains("ids must differ"));
    assert_eq!(refused(&mut gateway, GOLD).await.0, 401);
}
