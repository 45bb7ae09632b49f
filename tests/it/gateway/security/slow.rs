//! Heads that come slowly, or never (S1).

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::support::client::{Client, completion};
use crate::support::gateway::on_sockets;
use crate::support::{soon, until};

const SLOW: usize = 200;
const LIMIT: Duration = Duration::from_secs(3);
const GAP: Duration = Duration::from_millis(500);
/// What a busy machine may add to the limit, beside the second that there is.
const BUSY: Duration = Duration::from_secs(4);

/// How long a connection is kept open that sends `bytes` one at a time, and then nothing.
async fn kept_open(addr: std::net::SocketAddr, bytes: &[u8]) -> Duration {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let began = Instant::now();
    let (mut reading, mut writing) = stream.split();
    let drip = async {
        for byte in bytes {
            if writing.write_all(&[*byte]).await.is_err() {
                break;
            }
            tokio::time::sleep(GAP).await;
        }
        std::future::pending::<()>().await;
    };
    let mut rest = Vec::new();
    tokio::select! {
        _ = soon("a slow head is given up", reading.read_to_end(&mut rest)) => {}
        () = drip => {}
    }
    began.elapsed()
}

#[tokio::test]
async fn heads_that_do_not_come_are_given_up_in_time_and_keep_nobody_from_being_served() {
    let (gateway, mut backend) = on_sockets(4, |raw| {
        raw.timeouts.header = Some("3s".into());
        // All of them and one: each that is not given up keeps somebody out.
        raw.limits.connections = Some(SLOW as u32 + 1);
    })
    .await;
    let addr = gateway.data_addr();
    let mut slow = JoinSet::new();
    for n in 0..SLOW {
        let bytes: &'static [u8] = match n % 4 {
            0 => b"",
            1 => b"POST /v1/completions HTTP/1.1\r\nhost: g\r\n",
            // Empty lines before a request are none.
            2 => b"\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n",
            _ => b"GET /v1/models HTTP/1.1\r\nx: aaaaaaaaaaaaaaaaaaaaaaaaa",
        };
        slow.spawn(kept_open(addr, bytes));
    }
    let service = gateway.service().clone();
    until("all are connected", || service.connections() >= SLOW).await;
    // As long as any of them is there, one client after the other is served.
    let mut served = 0;
    while service.connections() >= SLOW / 2 || served < 20 {
        let (answer, ()) = tokio::join!(Client::tcp(addr).await.send(completion("")), async {
            backend.call().await.stream().finish();
        });
        assert_eq!(answer.unwrap().status, 200);
        served += 1;
        until("it has gone", || service.connections() <= SLOW).await;
    }
    let mut times = Vec::new();
    while let Some(took) = soon("a slow head is given up", slow.join_next()).await {
        times.push(took.unwrap());
    }
    times.sort();
    let (shortest, longest) = (times[0], times[SLOW - 1]);
    assert!(shortest >= LIMIT - Duration::from_millis(100), "{shortest:?}");
    assert!(longest <= LIMIT + Duration::from_secs(1) + BUSY, "{longest:?}");
    until("all have gone", || service.connections() == 0).await;
    assert_eq!(service.totals().offers, served);
    gateway.stop().await;
}
