//! Histories that survive, and those that are refused.

use super::history::*;
use super::placement::Placement;
use crate::coherence::node_set::NodeSet;
use crate::coherence::pages::PageEngine;
use crate::coherence::pages::region::{Homes, Region, Unit};
use crate::faults::Rng;
use crate::ids::NodeId;

fn job() -> Identity {
    Identity { program: [0xab; 32], nodes: 8, threads: 2, engine: PageEngine::Multicast }
}

fn choice(rng: &mut Rng) -> Choice {
    let members = (0..8).filter(|_| rng.below(2) == 0).map(NodeId).collect::<NodeSet>();
    let placement = Placement { manager: NodeId(rng.below(8) as u16), is_homed: rng.below(2) == 0 };
    Choice { placement, is_early: rng.below(2) == 0, members, epochs: rng.below(9) as u32 }
}

fn history(rng: &mut Rng, variables: usize) -> History {
    let names = ["grid", "a.c:12#3", "with spaces and\nlines", "%25", "größe"];
    let mut history = History::new(job());
    for _ in 0..variables {
        let unit_pages = 1 << rng.below(4);
        let [offset, pages] = [rng.below(9) as u32 * unit_pages, (1 + rng.below(9) as u32) * unit_pages];
        let name = names[rng.below(names.len() as u64) as usize].to_string();
        let region_pages = offset + pages + rng.below(9) as u32;
        history.variables.push(Variable { name, region_pages, offset, pages, unit_pages, choice: choice(rng) });
    }
    history
}

#[test]
fn a_history_survives() {
    let mut rng = Rng::new(4);
    for variables in [0, 1, 7, 300] {
        let history = history(&mut rng, variables);
        assert_eq!(History::decode(history.encode().as_bytes(), &job()), Ok(history));
    }
}

#[test]
fn it_is_text_that_people_can_read() {
    let mut history = History::new(job());
    let members = [0, 1, 2, 5].map(NodeId).into_iter().collect();
    let placement = Placement { manager: NodeId(2), is_homed: false };
    let (choice, name) = (Choice { placement, is_early: true, members, epochs: 512 }, "my grid#1@3".to_string());
    history.variables.push(Variable { name, region_pages: 64, offset: 0, pages: 16, unit_pages: 1, choice });
    let text = history.encode();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("comem-history 1 "), "{text}");
    assert_eq!(lines[1], format!("program {}", "ab".repeat(32)));
    assert_eq!(lines[2], "job nodes 8 threads 2 engine multicast");
    assert_eq!(lines[3], "variable my%20grid#1@3 64 0 16 1 manager 2 distributed early used 512 members 0-2,5");
}

#[test]
fn a_history_that_was_cut_short_or_changed_anywhere_is_refused() {
    let text = history(&mut Rng::new(5), 12).encode();
    for len in 0..text.len() {
        assert!(History::decode(&text.as_bytes()[..len], &job()).is_err(), "{len} of {} bytes", text.len());
    }
    let mut rng = Rng::new(6);
    for _ in 0..2_000 {
        let mut bytes = text.clone().into_bytes();
        let at = rng.below(bytes.len() as u64) as usize;
        bytes[at] ^= 1 << rng.below(8);
        assert!(History::decode(&bytes, &job()).is_err(), "byte {at}");
    }
}

#[test]
fn each_refusal_is_a_sentence_that_says_why() {
    let refused = |bytes: &[u8], job: &Identity| History::decode(bytes, job).unwrap_err().to_string();
    let text = history(&mut Rng::new(7), 3).encode();
    let bytes = text.as_bytes();
    assert_eq!(refused(&bytes[..bytes.len() - 1], &job()), "it is damaged or was cut short");
    assert_eq!(refused(b"", &job()), "it is damaged or was cut short");
    assert_eq!(refused(b"{\"schema\": 1}", &job()), "it is no history of a job");
    let later = text.replacen("comem-history 1", "comem-history 2", 1);
    let version = "it has version 2 of the format, and this is Comem with version 1";
    assert_eq!(refused(later.as_bytes(), &job()), version);
    let large = vec![b' '; HISTORY_BYTES_MAX + 1];
    assert_eq!(refused(&large, &job()), "it has 1048577 bytes, and none has more than 1048576");
    assert_eq!(check_size(1 << 30), Err(Refused::TooLarge(1 << 30)), "before it is read");
    let other = Identity { nodes: 4, ..job() };
    assert_eq!(refused(bytes, &other), "it is of a job of 8 nodes with 2 threads each");
    let other = Identity { engine: PageEngine::Lrc, ..job() };
    assert_eq!(refused(bytes, &other), "it is of a job under multicast");
}

/// The checksum is no secret: what is written on purpose is read with care, too.
#[test]
fn hostile_histories_are_refused_line_by_line() {
    let head = format!("program {}\njob nodes 8 threads 2 engine multicast\n", "ab".repeat(32));
    let fine = "variable grid 16 0 8 1 manager 2 homed late used 4 members 0,3";
    let decode = |line: &str| History::decode(with_head(&format!("{head}{line}\n")).as_bytes(), &job());
    assert_eq!(decode(fine).unwrap().variables.len(), 1);
    for (wrong, what) in [
        ("", "a word is not where it should be"),
        ("variable", "it ends too soon"),
        ("variable grid 16 0 8 1 manager 8 homed late used 4 members 0,3", "the job has no such manager"),
        ("variable grid 16 0 8 1 manager 2 homed late used 4 members 0,8", "the copyset cannot be"),
        ("variable grid 16 0 8 1 manager 2 homed late used 4 members 0-65535", "the copyset cannot be"),
        ("variable grid 16 0 8 1 manager 2 homed late used 4 members 3,0", "the copyset cannot be"),
        ("variable grid 16 0 8 1 manager 2 homed late used 4 members 0,,3", "the copyset cannot be"),
        ("variable grid 16 0 8 1 manager 2 homed late used 4 members 0,3 4", "something stands behind its end"),
        ("variable grid 16 0 8 1 manager 2 maybe late used 4 members 0,3", "a word is not where it should be"),
        ("variable grid 16 -1 8 1 manager 2 homed late used 4 members 0,3", "a number cannot be"),
        ("variable grid 16 00 8 1 manager 2 homed late used 4 members 0,3", "a number cannot be"),
        ("variable grid 16 0 99999999999 1 manager 2 homed late used 4 members 0,3", "a number cannot be"),
        ("variable grid 16 0 8 3 manager 2 homed late used 4 members 0,3", "its pages are no units of its region"),
        ("variable grid 16 0 8 0 manager 2 homed late used 4 members 0,3", "its pages are no units of its region"),
        ("variable grid 16 1 8 2 manager 2 homed late used 4 members 0,3", "its pages are no units of its region"),
        ("variable grid 16 0 0 1 manager 2 homed late used 4 members 0,3", "its pages are no units of its region"),
        (
            "variable grid 16 4294967295 8 1 manager 2 homed late used 4 members 0,3",
            "its pages are no units of its region",
        ),
        ("variable grid 7 0 8 1 manager 2 homed late used 4 members 0,3", "its pages are no units of its region"),
        ("variable grid 16 0 8 1 manager 2 homed late used often members 0,3", "a number cannot be"),
        ("variable grid 16 0 8 1 manager 2 homed late members 0,3", "a word is not where it should be"),
        ("variable %2 16 0 8 1 manager 2 homed late used 4 members 0,3", "its name cannot be"),
        ("variable %ff 16 0 8 1 manager 2 homed late used 4 members 0,3", "its name cannot be"),
        ("variable  16 0 8 1 manager 2 homed late used 4 members 0,3", "its name cannot be"),
    ] {
        assert_eq!(decode(wrong), Err(Refused::Line { line: 4, what }), "{wrong}");
    }
    let long = format!("variable {} 16 0 8 1 manager 2 homed late used 4 members 0,3", "x".repeat(NAME_MAX + 1));
    assert_eq!(decode(&long), Err(Refused::Line { line: 4, what: "its name cannot be" }));
    let body = head.replace("nodes 8", "nodes 60000");
    let refused = History::decode(with_head(&body).as_bytes(), &job());
    assert_eq!(refused, Err(Refused::Line { line: 3, what: "no job has so many nodes" }));
    // A megabyte of lines costs a megabyte, or so.
    let many = format!("{head}{}", format!("{fine}\n").repeat(15_000));
    assert!(many.len() < HISTORY_BYTES_MAX);
    assert_eq!(History::decode(with_head(&many).as_bytes(), &job()).unwrap().variables.len(), 15_000);
}

#[test]
fn bytes_of_any_kind_are_read_without_harm() {
    let mut rng = Rng::new(8);
    let words = ["variable", "manager", "homed", "late", "members", "none", "0-3", "0,5", "%41", "\n", "7", "job", ""];
    for _ in 0..20_000 {
        let noise: Vec<u8> = (0..rng.below(60)).map(|_| rng.next_u64() as u8).collect();
        let _ = History::decode(&noise, &job());
        let picked: Vec<&str> = (0..rng.below(16)).map(|_| words[rng.below(words.len() as u64) as usize]).collect();
        let _ = History::decode(with_head(&picked.join(" ")).as_bytes(), &job());
        let head = format!("program {}\njob nodes 8 threads 2 engine multicast\n", "ab".repeat(32));
        let _ = History::decode(with_head(&format!("{head}{}\n", picked.join(" "))).as_bytes(), &job());
    }
}

#[test]
fn where_there_is_no_room_what_was_used_least_is_left_out_and_the_rest_is_read_again() {
    let mut rng = Rng::new(9);
    let history = history(&mut rng, 40_000);
    let text = history.encode();
    assert!(text.len() <= HISTORY_BYTES_MAX && text.len() > HISTORY_BYTES_MAX - 1_000, "{}", text.len());
    let read = History::decode(text.as_bytes(), &job()).unwrap();
    let least = read.variables.iter().map(|variable| variable.choice.epochs).min().unwrap();
    let more = |history: &History| -> Vec<Variable> {
        history.variables.iter().filter(|variable| variable.choice.epochs > least).cloned().collect()
    };
    assert!(least > 0 && more(&read).len() > 1_000);
    assert_eq!(more(&read), more(&history), "in their order");
}

fn region(pages: u32) -> Region {
    Region {
        first: 512,
        pages,
        bytes: 1,
        unit: Unit::Pages(2),
        engine: PageEngine::Multicast,
        homes: Homes::Block,
        owner: None,
        cut_up: false,
        label: "grid".to_string(),
    }
}

type Known = Vec<(std::ops::Range<u32>, Choice)>;

fn known(history: &History, name: &str, region: &Region) -> Known {
    history.choices(name, region).map(|(run, choice)| (run, choice.clone())).collect()
}

#[test]
fn choices_are_for_regions_of_the_same_name_and_about_the_same_size() {
    let (mut history, mut rng) = (History::new(job()), Rng::new(1));
    let choices = [choice(&mut rng), choice(&mut rng)];
    let runs = [512..514, 514..516, 516..520].into_iter().zip([&choices[0], &choices[0], &choices[1]]);
    history.add("grid", &region(8), runs.map(|(run, choice)| (run, choice.clone())));
    history.add("", &region(8), [(512..514, choices[0].clone())]);
    assert_eq!(history.variables.len(), 2, "neighbours are one, and what has no name is none");
    let [first, second] = [(512..516, choices[0].clone()), (516..520, choices[1].clone())];
    for pages in [8, 10, 16] {
        assert_eq!(known(&history, "grid", &region(pages)), [first.clone(), second.clone()], "{pages}");
    }
    assert_eq!(known(&history, "grid", &region(6)), [first.clone(), (516..518, choices[1].clone())]);
    assert_eq!(known(&history, "grid", &region(4)), [first]);
    for (name, region) in [("other", region(8)), ("grid", region(18)), ("grid", region(2))] {
        assert_eq!(known(&history, name, &region), [], "{name}, {} pages", region.pages);
    }
    assert_eq!(known(&history, "grid", &Region { unit: Unit::Pages(4), ..region(8) }), []);
}

#[test]
fn regions_are_known_by_label_or_site_and_by_who_allocated_them_alone() {
    let of = |label: &str, owner: Option<u16>| {
        name_of(&Region { label: label.to_string(), owner: owner.map(NodeId), ..region(8) })
    };
    assert_eq!([of("grid", None), of("a.c:12", Some(3)), of("", Some(3))], ["grid", "a.c:12@3", ""]);
    assert_eq!([0, 1, 12].map(|before| numbered("a.c:12", before)), ["a.c:12", "a.c:12#1", "a.c:12#12"]);
    assert_eq!(numbered("", 7), "", "what has no name gets none");
    let long = numbered(&"größe".repeat(9), 1_000);
    assert!(long.len() <= 64 && long.ends_with("#1000"), "{long}");
}

#[test]
fn of_a_program_that_has_changed_labels_count_and_sites_do_not() {
    let mut history = History::new(job());
    let choice = choice(&mut Rng::new(1));
    let names = ["grid", "grid#2@1", "b.rs:x", "a.c:12", "a.c:12#1", "a.c:12@3", "a.c:12#1@3", "7", "#1", ":"];
    names.iter().for_each(|name| history.add(name, &region(8), [(512..514, choice.clone())]));
    let kept = |program| -> Vec<String> {
        let history = history.clone().for_program(program);
        assert_eq!(history.identity.program, program);
        history.variables.into_iter().map(|variable| variable.name).collect()
    };
    assert_eq!(kept([0xab; 32]), names);
    assert_eq!(kept([0; 32]), ["grid", "grid#2@1", "b.rs:x", "7", "#1", ":"]);
}

#[test]
fn what_a_run_has_not_had_fades_by_half_each_time() {
    let mut file = History::new(job());
    let with = |epochs| Choice { epochs, ..choice(&mut Rng::new(1)) };
    file.add("gone", &region(8), [(512..514, with(4))]);
    file.add("grid", &region(8), [(512..514, with(64))]);
    file.add("a.c:1", &region(8), [(512..514, with(64))]);
    let left = |history: &History| -> Vec<(String, u32)> {
        history.variables.iter().map(|variable| (variable.name.clone(), variable.choice.epochs)).collect()
    };
    let named = |all: &[(&str, u32)]| -> Vec<(String, u32)> {
        all.iter().map(|(name, epochs)| ((*name).to_string(), *epochs)).collect()
    };
    let run = || {
        let mut run = History::new(job());
        run.add("grid", &region(8), [(512..514, with(16))]);
        run
    };
    let second = run().after(file.clone());
    assert_eq!(left(&second), named(&[("grid", 16), ("gone", 2), ("a.c:1", 32)]));
    let third = run().after(second);
    assert_eq!(left(&third), named(&[("grid", 16), ("gone", 1), ("a.c:1", 16)]));
    assert_eq!(left(&run().after(third)), named(&[("grid", 16), ("a.c:1", 8)]));
    let changed = History { identity: Identity { program: [0; 32], ..job() }, ..run() };
    assert_eq!(left(&changed.after(file)), named(&[("grid", 16), ("gone", 2)]), "sites of an older program are gone");
}
