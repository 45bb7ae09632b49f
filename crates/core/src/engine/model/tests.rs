use super::*;
use crate::slo::Slo;
use crate::time::Span;

fn profile() -> Profile {
    Profile::built_in("gb10-qwen3-8b-fp8").unwrap()
}

fn work(tag: u64, input: u32, output: u32) -> Work {
    Work { tag, prompt: Prompt::Unique, input, output }
}

fn run_to_end(engine: &mut Engine) -> Vec<Emission> {
    let mut all = Vec::new();
    while let Some(at) = engine.next_wake() {
        while let Some(e) = engine.poll(at) {
            all.push(e);
        }
    }
    all
}

#[test]
fn an_idle_engine_answers_after_overheads_and_one_step() {
    let p = profile();
    let mut engine = Engine::new(&p);
    engine.submit(Tick::ZERO, work(1, 64, 3)).unwrap();
    let tokens = run_to_end(&mut engine);
    let first = Tick::ZERO + p.overhead_in + p.step(0, 64, 0) + p.overhead_out;
    assert_eq!(tokens[0], Emission { tag: 1, at: first, index: 1, last: false, cached: 0 });
    assert_eq!(tokens[1].at, first + p.step(65, 0, 1));
    assert_eq!(tokens[2].at, tokens[1].at + p.step(66, 0, 1));
    assert!(tokens[2].last);
}

#[test]
fn no_request_is_faster_than_at_best_and_one_alone_is_as_fast() {
    for cached in [true, false] {
        let p = Profile { prefix_cache: cached, ..profile() };
        for (input, output) in [(1, 1), (64, 32), (960, 224)] {
            let mut engine = Engine::new(&p);
            engine.submit(Tick::ZERO, work(1, input, output)).unwrap();
            let tokens = run_to_end(&mut engine);
            let best = p.at_best(input, output);
            // Each step is rounded to a nanosecond.
            let near = |got: Tick, expected: Span| got.since(Tick::ZERO + expected) <= Span::from_nanos(300);
            let whole = if cached { p.step(0, input, 0).saturating_sub(p.step(0, 1, 0)) } else { Span::ZERO };
            assert!(near(tokens[0].at, best.ttft + whole), "{input} {output}: {best:?}");
            assert!(near(tokens[tokens.len() - 1].at, best.e2e + whole), "{input} {output}: {best:?}");
            assert!(tokens[0].at + Span::from_nanos(300) >= Tick::ZERO + best.ttft);
        }
    }
}

#[test]
fn limits_below_what_an_idle_engine_takes_cannot_be_kept() {
    let p = profile();
    let e2e = |ms| Slo { e2e: Some(Span::from_millis(ms)), ..Slo::default() };
    // 224 tokens at 40 ms each take 9 s.
    assert!(p.at_best(960, 224).misses(&e2e(8_000)) && !p.at_best(960, 224).misses(&e2e(10_000)));
    let tpot = Slo { tpot: Some(Span::from_millis(30)), ..Slo::default() };
    assert!(p.at_best(64, 2).misses(&tpot) && !p.at_best(64, 1).misses(&tpot));
    let ttft = Slo { ttft: Some(Span::from_millis(20)), ..Slo::default() };
    assert!(p.at_best(64, 1).misses(&ttft) && !p.at_best(64, 1).misses(&Slo::default()));
}

#[test]
fn a_request_that_arrives_during_a_step_enters_the_second_step_after_it() {
    let mut p = profile();
    p.overhead_in = Span::ZERO;
    p.overhead_out = Span::ZERO;
    let mut engine = Engine::new(&p);
    engine.submit(Tick::ZERO, work(1, 64, 100)).unwrap();
    engine.submit(Tick::from_nanos(1), work(2, 64, 1)).unwrap();
    let tokens = run_to_end(&mut engine);
    let end_of_first = Tick::ZERO + p.step(0, 64, 0);
    let end_of_second = end_of_first + p.step(65, 0, 1);
    let second = tokens.iter().find(|e| e.tag == 2).unwrap();
    assert_eq!(second.at, end_of_second + p.step(66, 64, 1));

    p.pipeline_depth = 1;
    let mut engine = Engine::new(&p);
    engine.submit(Tick::ZERO, work(1, 64, 100)).unwrap();
    engine.submit(Tick::from_nanos(1), work(2, 64, 1)).unwrap();
    let second = *run_to_end(&mut engine).iter().find(|e| e.tag == 2).unwrap();
    assert_eq!(second.at, end_of_first + p.step(65, 64, 1));
}

#[test]
fn a_finished_sequence_keeps_its_seat_for_one_step_more_than_its_tokens() {
    let mut p = profile();
    p.max_seqs = 1;
    p.overhead_in = Span::ZERO;
    let mut engine = Engine::new(&p);
    engine.submit(Tick::ZERO, work(1, 64, 4)).unwrap();
    engine.submit(Tick::ZERO, work(2, 64, 4)).unwrap();
    let tokens = run_to_end(&mut engine);
    // The engine has nothing else to do in that step, so none is run: the seat passes on at once
    // when the last step has been processed, and the second prompt starts right there.
    let last = tokens.iter().find(|e| e.tag == 1 && e.last).unwrap().at;
    let first = tokens.iter().find(|e| e.tag == 2).unwrap().at;
    assert_eq!(first, last + p.step(0, 64, 0));

    p.max_seqs = 2;
    let mut engine = Engine::new(&p);
    engine.submit(Tick::ZERO, work(0, 64, 100)).unwrap();
    engine.submit(Tick::ZERO, work(1, 64, 4)).unwrap();
    engine.submit(Tick::ZERO, work(2, 64, 4)).unwrap();
    let tokens = run_to_end(&mut engine);
    let step_of = |tag, index| {
        let at = tokens.iter().find(|e| e.tag == tag && e.index == index).unwrap().at;
        tokens.iter().filter(|e| e.tag == 0 && e.at <= at).count()
    };
    // Tokens of 1 in steps 1 to 4; its seat in steps 1 to 5; so 2 starts in step 6.
    assert_eq!((step_of(1, 4), step_of(2, 1)), (4, 6));
}

#[test]
fn a_prompt_beyond_the_budget_is_prefilled_in_chunks() {
    let mut p = profile();
    p.token_budget = 100;
    p.overhead_in = Span::ZERO;
    p.overhead_out = Span::ZERO;
    let mut engine = Engine::new(&p);
    engine.submit(Tick::ZERO, work(1, 250, 1)).unwrap();
    let tokens = run_to_end(&mut engine);
    let expected = Tick::ZERO + p.step(0, 100, 0) + p.step(100, 100, 0) + p.step(200, 50, 0);
    assert_eq!(tokens[0].at, expected);
}

#[test]
fn an_abort_takes_no_token_of_another_sequence_with_the_same_tag() {
    let mut p = profile();
    p.overhead_in = Span::ZERO;
    let mut engine = Engine::new(&p);
    let first = engine.submit(Tick::ZERO, work(7, 64, 2)).unwrap();
    engine.submit(Tick::ZERO, work(7, 64, 2)).unwrap();
    // Both first tokens are on their way to the clients.
    let now = Tick::ZERO + p.step(0, 128, 0);
    assert!(engine.poll(now).is_none());
    assert!(engine.abort(now, first));
    assert_eq!(run_to_end(&mut engine).iter().map(|e| e.index).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn a_bounded_prefix_cache_forgets_the_oldest_prompt() {
    let p = profile();
    let cached_again = |mut engine: Engine| {
        for (tag, family) in [(1, 1), (2, 2), (3, 1)] {
            let now = engine.now;
            engine.submit(now, Work { tag, prompt: Prompt::Family(family), input: 64, output: 1 }).unwrap();
            run_to_end(&mut engine);
        }
        engine.stats().cache_hits
    };
    assert_eq!(cached_again(Engine::new(&p)), 48);
    assert_eq!(cached_again(Engine::new(&p).with_cache_blocks(4)), 0);
}

#[test]
fn an_aborted_sequence_gives_up_its_seat_and_sends_nothing_more() {
    let mut p = profile();
    p.max_seqs = 1;
    let mut engine = Engine::new(&p);
    let first = engine.submit(Tick::ZERO, work(1, 64, 100)).unwrap();
    engine.submit(Tick::ZERO, work(2, 64, 1)).unwrap();
    let now = Tick::ZERO + Span::from_millis(200);
    while engine.poll(now).is_some() {}
    assert!(engine.abort(now, first));
    assert!(!engine.abort(now, first));
    let rest = run_to_end(&mut engine);
    assert_eq!(rest.iter().map(|e| e.tag).collect::<Vec<_>>(), [2]);
    assert_eq!(engine.stats().running, 0);
}

/// A step of 10 ms and one more for each prefilled token, one step at a time, three blocks of 4 tokens.
fn small() -> Profile {
    let mut p = profile();
    (p.base_ms, p.prefill_ms_per_token) = (10.0, 1.0);
    (p.kv_ms_per_token, p.prefill_step_ms, p.roof_tokens, p.attention_ms) = (0.0, 0.0, 0.0, 0.0);
    (p.overhead_in, p.overhead_out) = (Span::ZERO, Span::ZERO);
    (p.block_tokens, p.pipeline_depth, p.kv_blocks, p.prefix_cache) = (4, 1, Some(3), false);
    p
}

#[test]
fn the_sequence_admitted_last_gives_up_its_blocks_and_is_computed_again() {
    let mut engine = Engine::new(&small());
    engine.submit(Tick::ZERO, work(1, 4, 6)).unwrap();
    engine.submit(Tick::ZERO, work(2, 4, 4)).unwrap();
    let tokens = run_to_end(&mut engine);
    let times = |tag| {
        let of = tokens.iter().filter(move |e| e.tag == tag);
        of.map(|e| (e.index, e.at.as_nanos() / 1_000_000)).collect::<Vec<_>>()
    };
    // Both prompts: 18 ms. Then the first takes the third block and the second has to go. It needs two
    // blocks to come back, prompt and first token, and gets them when the first one has ended, at 68 ms:
    // 5 tokens to prefill. The token that it had is not sent again.
    assert_eq!(times(1), [(1, 18), (2, 28), (3, 38), (4, 48), (5, 58), (6, 68)]);
    assert_eq!(times(2), [(1, 18), (2, 83), (3, 93), (4, 103)]);
    let stats = engine.stats();
    assert_eq!((stats.preemptions, stats.generated_tokens, stats.prompt_tokens), (1, 10, 8));
    assert_eq!((stats.running, stats.waiting, stats.kv_blocks), (0, 0, 0));
}

#[test]
fn who_lost_its_seat_is_the_first_to_get_one() {
    let mut engine = Engine::new(&Profile { max_seqs: 2, ..small() });
    for (tag, output) in [(1, 6), (2, 4), (3, 1)] {
        engine.submit(Tick::ZERO, work(tag, 4, output)).unwrap();
    }
    // A block is free for the third while the second, which needs two, waits for the end of the first.
    let order: Vec<u64> = run_to_end(&mut engine).iter().map(|e| e.tag).collect();
    assert_eq!(order, [1, 2, 1, 1, 1, 1, 1, 2, 3, 2, 2]);
    assert_eq!(engine.stats().preemptions, 1);
}

#[test]
fn a_prompt_waits_for_its_blocks_although_a_seat_is_free_and_nobody_overtakes_it() {
    let mut engine = Engine::new(&small());
    for (tag, input) in [(1, 8), (2, 8), (3, 4)] {
        engine.submit(Tick::ZERO, work(tag, input, 1)).unwrap();
    }
    assert!(engine.poll(Tick::ZERO).is_none());
    let stats = engine.stats();
    assert_eq!((stats.running, stats.waiting, stats.kv_blocks), (1, 2, 2));
    let order: Vec<u64> = run_to_end(&mut engine).iter().map(|e| e.tag).collect();
    assert_eq!(order, [1, 2, 3]);
}

#[test]
fn what_can_never_fit_is_refused_and_changes_nothing() {
    let mut engine = Engine::new(&small());
    // The last token is never fed in, so it needs no room.
    assert!(engine.submit(Tick::ZERO, work(1, 8, 5)).is_ok());
    let refusal = engine.submit(Tick::ZERO, work(2, 8, 6)).unwrap_err();
    assert_eq!(refusal, TooLong { tokens: 13, room: 12 });
    let tokens = run_to_end(&mut engine);
    assert_eq!(tokens.iter().map(|e| e.tag).collect::<Vec<_>>(), [1; 5]);
}

#[test]
fn shared_blocks_count_once_and_free_ones_keep_their_prefix_until_they_are_needed() {
    let p = Profile { prefix_cache: true, kv_blocks: Some(6), ..small() };
    let mut engine = Engine::new(&p);
    let submit = |engine: &mut Engine, tag, family| {
        let now = engine.now;
        engine.submit(now, Work { tag, prompt: Prompt::Family(family), input: 16, output: 1 }).unwrap();
        assert!(engine.poll(now).is_none());
    };
    submit(&mut engine, 1, 1);
    assert_eq!(engine.stats().kv_blocks, 4);
    submit(&mut engine, 2, 1);
    run_to_end(&mut engine);
    // Nothing is in use, and the second one found all but the block of its last token.
    assert_eq!((engine.stats().kv_blocks, engine.stats().cache_hits), (0, 12));
    // Two together: three blocks are shared, each has one of its own.
    let now = engine.now;
    for tag in [3, 4] {
        engine.submit(now, Work { tag, prompt: Prompt::Family(1), input: 16, output: 1 }).unwrap();
    }
    assert!(engine.poll(now).is_none());
    assert_eq!((engine.stats().running, engine.stats().kv_blocks), (2, 5));
    run_to_end(&mut engine);
    // Another text takes four of the six: the longest free first, the ends of the first text's blocks.
    submit(&mut engine, 5, 2);
    run_to_end(&mut engine);
    let before = engine.stats().cache_hits;
    submit(&mut engine, 6, 1);
    run_to_end(&mut engine);
    assert_eq!(engine.stats().cache_hits - before, 8);
}

#[test]
fn a_preempted_sequence_finds_what_it_had_computed_if_nobody_took_the_blocks() {
    // Both prompts and four more tokens each fill two blocks each. Then the second one has to go. It comes
    // back when the first one has ended, with 9 tokens. Of four blocks the first one took that which the
    // second had filled last, so 4 tokens are found; with five blocks 8 are.
    for (kv_blocks, computed) in [(4, 5), (5, 1)] {
        let mut engine = Engine::new(&Profile { prefix_cache: true, kv_blocks: Some(kv_blocks), ..small() });
        engine.submit(Tick::ZERO, work(1, 4, 7)).unwrap();
        engine.submit(Tick::ZERO, work(2, 4, 7)).unwrap();
        let tokens = run_to_end(&mut engine);
        let at = |tag, index| tokens.iter().find(|e| e.tag == tag && e.index == index).unwrap().at;
        let ms = |n| Tick::ZERO + Span::from_millis(n);
        assert_eq!((at(2, 5), at(1, 7), at(2, 6)), (ms(58), ms(78), ms(78 + 10 + computed)), "{kv_blocks} blocks");
        assert_eq!(engine.stats().preemptions, 1);
    }
}

#[test]
fn a_prompt_that_was_cut_off_while_it_was_prefilled_leaves_only_what_was_computed() {
    let p = Profile { prefix_cache: true, kv_blocks: Some(8), token_budget: 9, max_seqs: 4, ..small() };
    let mut engine = Engine::new(&p);
    let prompt = |tag| Work { tag, prompt: Prompt::Family(1), input: 32, output: 1 };
    let first = engine.submit(Tick::ZERO, prompt(1)).unwrap();
    let now = Tick::ZERO + Span::from_millis(1);
    assert!(engine.poll(now).is_none());
    assert!(engine.abort(now, first));
    engine.submit(now, prompt(2)).unwrap();
    run_to_end(&mut engine);
    // One step of nine tokens was fixed: two whole blocks.
    assert_eq!(engine.stats().cache_hits, 8);
}
