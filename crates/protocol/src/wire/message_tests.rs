//! Every message, written and read again; what is none is refused.

use super::*;
use crate::ids::NodeId;

fn examples() -> Vec<Message<'static>> {
    let unit = UnitId { object: ObjectId(3), index: 9 };
    let channel = Channel { node: NodeId(2), slot: Slot::thread(1) };
    let requester = Some(Ticket { channel, seq: Seq::guarded(channel, 44) });
    let what = Collective { kind: 2, detail: 77 };
    vec![
        Message::Get { unit, want: Want::Modified },
        Message::Forward { unit, want: Want::Shared, as_owner: true, requester },
        Message::Forward { unit, want: Want::Modified, as_owner: false, requester: None },
        Message::Invalidate { unit, send_data: true },
        Message::Data { unit, grant: Want::Shared, bytes: b"abc" },
        Message::Grant { unit },
        Message::ForwardDone { unit },
        Message::InvalidateDone { unit, checksum: 5, bytes: b"" },
        Message::GiveBack { unit, bytes: b"back" },
        Message::GiveBackDone { unit },
        Message::OwnerRead { unit, offset: 8, len: 4 },
        Message::OwnerValue { unit, offset: 8, bytes: b"wxyz" },
        Message::OwnerWrite { unit, offset: 4, bytes: b"w" },
        Message::OwnerDone { unit },
        Message::Update { unit, offset: 0, bytes: b"news" },
        Message::LockRequest { lock: LockId(1), knowledge: b"k" },
        Message::LockForward { lock: LockId(1), requester, knowledge: b"" },
        Message::LockGrant { lock: LockId(1), payload: b"p" },
        Message::LockWants { of: NodeId(2), queued: true, entries: b"e" },
        Message::LockTokens { entries: b"e" },
        Message::CatchUp { lock: LockId(1), knowledge: b"k" },
        Message::CaughtUp { lock: LockId(1), payload: b"p" },
        Message::FlagSet { flag: FlagId(7), value: 2, payload: b"" },
        Message::FlagWait { flag: FlagId(7), value: 2, knowledge: b"k" },
        Message::FlagUp { flag: FlagId(7), value: 3, payload: b"q" },
        Message::Arrive { epoch: 1, repeated: true, elsewhere: false, what, payload: b"12345678", notices: b"n" },
        Message::Arrive { epoch: 1, repeated: false, elsewhere: true, what, payload: b"12345678", notices: b"n" },
        Message::Noted { epoch: 1 },
        Message::Release { epoch: 1, what, payload: b"", notices: b"" },
        Message::Apart { epoch: 1, apart: Apart([(NodeId(1), what), (NodeId(2), Collective::EXIT)]) },
        Message::User { thread: 4, bytes: b"hello" },
        Message::Deal { number: 3, wanted: BatchRequest { total: 1 << 40, chunk: 8, chunks: 2 } },
        Message::Dealt { fine: true, low: 16, high: 32 },
        Message::Fetch { body: b"f" },
        Message::Pages { body: b"p" },
        Message::Diffs { body: b"d" },
        Message::Region { body: b"r" },
        Message::RegionHeard,
        Message::Free { page: 9, offset: 64, stamp: 1 << 40, needs: b"n" },
        Message::Freed { fine: true },
        Message::Push { body: b"p" },
        Message::PushUnused { body: b"u" },
        Message::Atomic { body: b"a" },
        Message::AtomicDone { body: b"d" },
        Message::FetchDiffs { body: b"f" },
        Message::KeptDiffs { body: b"k" },
        Message::FetchBase { body: b"f" },
        Message::Base { body: b"b" },
        Message::DiffsAsked { body: b"a" },
        Message::DiffsTold { body: b"t" },
        Message::Remote { body: b"r" },
        Message::RemoteDone { body: b"e" },
        Message::Invite,
        Message::Invitation { body: b"i" },
        Message::Ask { request: SyncRequest::CondAwait, name: 1 << 63, knowledge: b"k" },
        Message::Ask { request: SyncRequest::SemGive, name: 3, knowledge: b"told" },
        Message::Answer { request: SyncRequest::SemTryWait, name: 3, slot: Slot::thread(2), yes: false, payload: b"p" },
        Message::Tell { update: SyncUpdate::WriteUnlock, name: 5, payload: b"" },
        Message::Meet { name: 5, threads: 3, payload: b"pay", knowledge: b"known" },
        Message::Hears { name: 1 << 40, serial: 7, interest: SignalInterest::Understood },
    ]
}

#[test]
fn every_message_survives_the_wire() {
    for message in examples() {
        let mut body = Vec::new();
        message.emit(&mut body);
        assert_eq!(Message::parse(message.ty(), &body), Ok(message));
    }
}

#[test]
fn a_shortened_message_is_refused_or_shorter_in_its_data_alone() {
    for message in examples() {
        let mut body = Vec::new();
        message.emit(&mut body);
        for len in 0..body.len() {
            if let Ok(parsed) = Message::parse(message.ty(), &body[..len]) {
                assert_eq!(std::mem::discriminant(&parsed), std::mem::discriminant(&message));
                assert_ne!(parsed, message);
            }
        }
    }
}

#[test]
fn who_frees_memory_names_no_stamp_beyond_the_last() {
    for (stamp, is_fine) in [(0, true), (INTERVAL_STAMP_MAX, true), (INTERVAL_STAMP_MAX + 1, false), (u64::MAX, false)]
    {
        let mut body = Vec::new();
        Message::Free { page: 1, offset: 2, stamp, needs: b"" }.emit(&mut body);
        assert_eq!(Message::parse(types::FREE, &body).is_ok(), is_fine, "{stamp}");
    }
}

#[test]
fn a_ticket_in_another_channels_name_is_refused() {
    let mut body = Vec::new();
    LockId(1).0.to_be_bytes().iter().for_each(|b| body.push(*b));
    body.put_u8(1);
    body.put_u32(Channel::service(NodeId(1)).number());
    body.put_u64(Seq::guarded(Channel::service(NodeId(2)), 1).0);
    assert!(Message::parse(types::LOCK_FORWARD, &body).is_err());
}
