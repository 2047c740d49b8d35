//! Files that are fit and files that are not, and how one takes another's place.

use super::*;
use comem_protocol::coherence::node_set::NodeSet;
use comem_protocol::coherence::pages::PageEngine;
use comem_protocol::coherence::pages::multicast::history::{Choice, Variable, with_head};
use comem_protocol::coherence::pages::multicast::placement::Placement;
use comem_protocol::ids::NodeId;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory that goes when the test ends.
struct Place(PathBuf);

impl Place {
    fn new() -> Place {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("comem-history-{}-{number}", std::process::id()));
        DirBuilder::new().mode(OWNER_ALONE_ENTERS).create(&path).expect("a new directory");
        Place(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("sor.history")
    }

    /// Writes bytes that nobody has checked, as the user would.
    fn put(&self, bytes: &[u8]) {
        std::fs::write(self.file(), bytes).expect("a file");
        set_mode(&self.file(), OWNER_ALONE);
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).expect("a directory");
        let mut names: Vec<_> =
            entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        set_mode(&self.0, OWNER_ALONE_ENTERS);
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("one's own file");
}

fn job() -> Identity {
    Identity { program: [0; 32], nodes: 4, threads: 2, engine: PageEngine::Multicast }
}

/// A history of one variable.
fn history(name: &str, epochs: u32) -> History {
    let members = [0, 3].map(NodeId).into_iter().collect::<NodeSet>();
    let placement = Placement { manager: NodeId(3), is_homed: false };
    let choice = Choice { placement, is_early: true, members, epochs };
    let variable = Variable { name: name.to_string(), region_pages: 8, offset: 0, pages: 8, unit_pages: 1, choice };
    History { identity: Identity { program: [7; 32], ..job() }, variables: vec![variable] }
}

fn known(path: &Path) -> Vec<(String, u32)> {
    let history = read(path, &job()).expect("a history").expect("a file");
    history.variables.into_iter().map(|variable| (variable.name, variable.choice.epochs)).collect()
}

#[test]
fn what_was_written_is_read_again_and_belongs_to_its_owner_alone() {
    let place = Place::new();
    assert_eq!(read(&place.file(), &job()), Ok(None), "there is none yet");
    write(&place.file(), history("grid", 4), &job(), false).unwrap();
    assert_eq!(read(&place.file(), &job()), Ok(Some(history("grid", 4))));
    assert_eq!(place.names(), [".sor.history.lock", "sor.history"]);
    for name in place.names() {
        assert_eq!(place.0.join(&name).metadata().unwrap().mode() & 0o777, 0o600, "{name}");
    }
}

#[test]
fn each_run_halves_what_it_has_not_had_and_what_a_killed_job_left_is_in_nobodys_way() {
    let place = Place::new();
    write(&place.file(), history("grid", 4), &job(), false).unwrap();
    std::fs::write(place.0.join(".sor.history.new"), b"half a hist").unwrap();
    write(&place.file(), history("rows", 8), &job(), false).unwrap();
    assert_eq!(known(&place.file()), [("rows".to_string(), 8), ("grid".to_string(), 2)]);
    write(&place.file(), history("rows", 8), &job(), false).unwrap();
    write(&place.file(), history("rows", 8), &job(), false).unwrap();
    assert_eq!(known(&place.file()), [("rows".to_string(), 8)]);
    assert_eq!(place.names(), [".sor.history.lock", "sor.history"]);
}

#[test]
fn the_directory_is_made_where_the_user_named_none() {
    let place = Place::new();
    let path = place.0.join("state/comem/history/sor.history");
    let refused = write(&path, history("grid", 4), &job(), false).unwrap_err();
    assert!(refused.contains("No such file"), "{refused}");
    write(&path, history("grid", 4), &job(), true).unwrap();
    assert_eq!(directory_of(&path).metadata().unwrap().mode() & 0o777, 0o700);
    assert_eq!(directory_of(Path::new("sor.history")), Path::new("."));
}

/// None of these is read, and none is written over.
#[test]
fn what_is_not_fit_is_refused_and_stays_as_it_is() {
    let text = history("grid", 4).encode();
    let foreign = History { identity: Identity { nodes: 8, ..job() }, ..history("grid", 4) }.encode();
    let nested = format!("{}{}", "[".repeat(500_000), "]".repeat(500_000));
    let hostile = with_head("program x\njob nodes 4 threads 2 engine multicast\n");
    for (bytes, why) in [
        (&text.as_bytes()[..text.len() / 2], "it is damaged or was cut short"),
        (b"", "it is damaged or was cut short"),
        (&[0xff; 4096][..], "it is no history of a job"),
        (b"Dear diary,\n", "it is no history of a job"),
        (nested.as_bytes(), "it is no history of a job"),
        (foreign.as_bytes(), "it is of a job of 8 nodes with 2 threads each"),
        (text.replacen("comem-history 1", "comem-history 9", 1).as_bytes(), "it has version 9 of the format"),
        (hostile.as_bytes(), "line 2 of it makes no sense"),
        (&[b' '; (1 << 20) + 1][..], "it has 1048577 bytes"),
    ] {
        let place = Place::new();
        place.put(bytes);
        for refused in [read(&place.file(), &job()).map(drop), write(&place.file(), history("x", 1), &job(), false)] {
            let refused = refused.expect_err(why);
            assert!(refused.contains(why), "{refused}");
        }
        assert_eq!(std::fs::read(place.file()).unwrap(), bytes, "{why}");
    }
}

#[test]
fn a_file_of_a_gigabyte_is_not_read() {
    let place = Place::new();
    place.put(b"");
    File::options().write(true).open(place.file()).unwrap().set_len(1 << 30).unwrap();
    let refused = read(&place.file(), &job()).unwrap_err();
    assert_eq!(refused, "it has 1073741824 bytes, and none has more than 1048576");
}

#[test]
fn links_pipes_and_directories_are_no_histories() {
    let place = Place::new();
    let elsewhere = place.0.join("elsewhere");
    std::fs::write(&elsewhere, history("grid", 4).encode()).unwrap();
    symlink(&elsewhere, place.file()).unwrap();
    let refuse = |why: &str| {
        for refused in [read(&place.file(), &job()).map(drop), write(&place.file(), history("x", 1), &job(), false)] {
            assert_eq!(refused, Err(why.to_string()));
        }
    };
    refuse("it is a symbolic link");
    assert_eq!(std::fs::read_to_string(&elsewhere).unwrap(), history("grid", 4).encode());
    std::fs::remove_file(place.file()).unwrap();
    symlink(place.0.join("nowhere"), place.file()).unwrap();
    refuse("it is a symbolic link");
    assert!(!place.0.join("nowhere").exists());
    std::fs::remove_file(place.file()).unwrap();
    std::fs::create_dir(place.file()).unwrap();
    refuse("it is no regular file");
    std::fs::remove_dir(place.file()).unwrap();
    let path = std::ffi::CString::new(place.file().into_os_string().into_encoded_bytes()).unwrap();
    // SAFETY: the path is a string that ends in zero, and lives during the call.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
    refuse("it is no regular file");
    // A link in place of the lock would have another file made.
    std::fs::remove_file(place.file()).unwrap();
    std::fs::remove_file(place.0.join(".sor.history.lock")).unwrap();
    symlink(place.0.join("nowhere"), place.0.join(".sor.history.lock")).unwrap();
    assert!(write(&place.file(), history("x", 1), &job(), false).unwrap_err().starts_with("its lock"));
    assert!(!place.0.join("nowhere").exists());
}

#[test]
fn what_others_may_have_written_is_not_believed() {
    let place = Place::new();
    place.put(history("grid", 4).encode().as_bytes());
    for mode in [0o620, 0o602, 0o666] {
        set_mode(&place.file(), mode);
        let refused = read(&place.file(), &job()).unwrap_err();
        assert!(refused.starts_with("others may write to it"), "{refused}");
    }
    set_mode(&place.file(), 0o644);
    assert!(read(&place.file(), &job()).unwrap().is_some(), "others may read it");
    if std::os::unix::fs::chown(place.file(), Some(12_345), None).is_err() {
        println!("SKIP: a file of another user: this user cannot give one away");
        return;
    }
    assert_eq!(read(&place.file(), &job()), Err("it belongs to another user (12345)".to_string()));
    assert!(write(&place.file(), history("x", 1), &job(), false).is_err());
    assert_eq!(place.file().metadata().unwrap().uid(), 12_345);
}

#[test]
fn what_is_read_only_is_read_and_stays() {
    let place = Place::new();
    place.put(history("grid", 4).encode().as_bytes());
    set_mode(&place.file(), 0o400);
    assert_eq!(known(&place.file()), [("grid".to_string(), 4)]);
    assert_eq!(write(&place.file(), history("x", 1), &job(), false), Err("it is read-only".to_string()));
    set_mode(&place.file(), OWNER_ALONE);
    set_mode(&place.0, 0o500);
    assert_eq!(write(&place.file(), history("x", 1), &job(), false), Err("its directory is read-only".to_string()));
    assert_eq!(known(&place.file()), [("grid".to_string(), 4)]);
}

#[test]
fn jobs_that_end_together_all_leave_what_they_arrived_at() {
    let place = Place::new();
    std::thread::scope(|scope| {
        for number in 0..8 {
            let path = place.file();
            scope.spawn(move || write(&path, history(&format!("of job {number}"), 1 << 20), &job(), false).unwrap());
        }
    });
    let mut names: Vec<String> = known(&place.file()).into_iter().map(|(name, _)| name).collect();
    names.sort();
    assert_eq!(names, (0..8).map(|number| format!("of job {number}")).collect::<Vec<_>>());
    let lock = File::open(place.0.join(".sor.history.lock")).unwrap();
    lock.lock().unwrap();
    let refused = write(&place.file(), history("x", 1), &job(), false).unwrap_err();
    assert_eq!(refused, "another job is writing it");
    assert_eq!(known(&place.file()).len(), 8);
}
