use super::*;
use crate::{Endpoint, PortChoice, RECEIVE_BUFFER_BYTES};
use std::net::{Ipv4Addr, Ipv6Addr};

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        Scratch(std::env::temp_dir().join(format!("comem-capture-{}-{name}.pcap", std::process::id())))
    }
}
impl Drop for Scratch {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.0));
    }
}

fn word(bytes: &[u8]) -> usize {
    u32::from_le_bytes(bytes[..4].try_into().unwrap()) as usize
}

/// The packets of a capture file.
fn packets(path: &Path) -> Vec<Vec<u8>> {
    let file = std::fs::read(path).unwrap();
    assert_eq!((word(&file), word(&file[20..])), (0xa1b2_3c4d, 101));
    let mut rest = &file[24..];
    let mut packets = Vec::new();
    while !rest.is_empty() {
        let len = word(&rest[8..]);
        assert_eq!(word(&rest[12..]), len);
        packets.push(rest[16..16 + len].to_vec());
        rest = &rest[16 + len..];
    }
    packets
}

#[test]
fn nobody_else_can_read_what_was_recorded() {
    let scratch = Scratch::new("mode");
    drop(Capture::create(&scratch.0).unwrap());
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&scratch.0).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn every_datagram_sent_and_received_is_in_the_file() {
    let scratch = Scratch::new("both");
    let host = Ipv4Addr::LOCALHOST.into();
    let capture = Capture::create(&scratch.0).unwrap();
    let a = Captured::new(Arc::new(Endpoint::bind(host, PortChoice::Any).unwrap()), capture);
    let b = Endpoint::bind(host, PortChoice::Any).unwrap();
    a.send_to(b"aabbc", 2, b.local_addr()).unwrap();
    b.send_to(b"answer", 100, a.local_addr()).unwrap();
    let mut buffer = vec![0; RECEIVE_BUFFER_BYTES];
    let received = a.recv(&mut buffer, Some(Duration::from_secs(20)), Wait::Block).unwrap();
    assert_eq!(received, Received::Datagrams { from: b.local_addr(), len: 6, segment: 6 });
    assert_eq!(a.try_recv(&mut buffer).unwrap(), Received::Timeout);
    assert!(a.send_to(b"x", 0, b.local_addr()).is_err(), "as without a capture");
    let packets = packets(&scratch.0);
    assert_eq!(packets.len(), 5);
    let payloads: Vec<&[u8]> = packets.iter().map(|p| &p[28..]).collect();
    assert_eq!(payloads[..4], [&b"aa"[..], b"bb", b"c", b"answer"]);
    let ports = |p: &[u8]| (u16::from_be_bytes([p[20], p[21]]), u16::from_be_bytes([p[22], p[23]]));
    assert_eq!(ports(&packets[0]), (a.local_addr().port(), b.local_addr().port()));
    assert_eq!(ports(&packets[3]), (b.local_addr().port(), a.local_addr().port()));
}

#[test]
fn behind_a_record_for_which_there_is_no_room_comes_none() {
    use std::io::Read;
    use std::os::fd::{AsRawFd, OwnedFd};
    let (mut reader, writer) = std::io::pipe().unwrap();
    for end in [reader.as_raw_fd(), writer.as_raw_fd()] {
        // SAFETY: the call changes the flags of an open descriptor and touches no memory.
        assert_eq!(unsafe { libc::fcntl(end, libc::F_SETFL, libc::O_NONBLOCK) }, 0);
    }
    let file = Mutex::new(Some((File::from(OwnedFd::from(writer)), 0)));
    let capture = Capture { file, path: PathBuf::from("a full pipe") };
    let (from, to) = (([10, 0, 0, 1], 7).into(), ([10, 0, 0, 2], 9).into());
    (0..100).for_each(|_| capture.record(from, to, &[7; 1001]));
    let mut first = Vec::new();
    let _ = reader.read_to_end(&mut first);
    assert!(first.len() > 10_000);
    capture.record(from, to, b"late");
    let mut late = Vec::new();
    let _ = reader.read_to_end(&mut late);
    assert_eq!(late, []);
}

#[test]
fn the_made_up_headers_are_sound() {
    let v4 = packet(([10, 0, 0, 1], 7).into(), ([10, 0, 0, 2], 9).into(), b"odd");
    assert_eq!(checksum(&[&v4[..20]]), 0);
    assert_eq!(u16::from_be_bytes([v4[2], v4[3]]) as usize, v4.len());
    let mut pseudo = v4[12..20].to_vec();
    pseudo.extend([0, UDP, 0, 11]);
    assert_eq!(checksum(&[&pseudo, &v4[20..]]), 0);
    let v6 = packet((Ipv6Addr::LOCALHOST, 7).into(), (Ipv6Addr::LOCALHOST, 9).into(), b"even");
    let mut pseudo = v6[8..40].to_vec();
    pseudo.extend([0, 0, 0, 12, 0, 0, 0, UDP]);
    assert_eq!(checksum(&[&pseudo, &v6[40..]]), 0);
    assert_eq!((v6[0] >> 4, u16::from_be_bytes([v6[4], v6[5]]), v6.len()), (6, 12, 52));
}

#[test]
fn the_longest_datagram_fits_a_made_up_packet() {
    let (from, to) = (([10, 0, 0, 1], 7).into(), ([10, 0, 0, 2], 9).into());
    assert_eq!(packet(from, to, &[7; 65_507]).len(), 65_535);
}

#[test]
fn each_process_has_a_file_of_its_own_and_a_bad_name_is_explained() {
    assert_eq!(Capture::path_for(Path::new("/tmp/job.pcap"), "2"), Path::new("/tmp/job.2.pcap"));
    assert_eq!(Capture::path_for(Path::new("job"), "2"), Path::new("job.2.pcap"));
    let error = Capture::create(Path::new("/no/such/directory/job.pcap")).unwrap_err();
    assert!(error.to_string().contains("/no/such/directory/job.pcap"), "{error}");
}
