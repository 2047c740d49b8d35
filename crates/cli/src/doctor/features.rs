//! What one host offers to a node. Each feature is probed by using it, never by the kernel's version.

use super::inline::InlineReport;
use super::limits::Limits;
use super::page_costs::PageCosts;
use super::pages::PageReport;
use crate::installation::InstallationReport;
use crate::preload;
use crate::sys;
use crate::sys::host::HostInfo;
use comem::capacity;
use comem_net::select::{self, Interface, PortChoice};
use comem_protocol::auth::{JobKey, Receiver, Sealer};
use comem_protocol::ids::NodeId;
use comem_protocol::node::identity::Layout;
use serde::{Deserialize, Serialize};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Instant;

/// What was found on a host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostReport {
    /// Its name, kernel, cores, memory, and Comem's version.
    pub info: HostInfo,
    /// How it came there, and what is missing.
    #[serde(default)]
    pub installation: InstallationReport,
    /// Memory that is free for programs, in MiB.
    pub memory_free_mib: u64,
    /// The interface chosen for Comem, its address and the most bytes of a packet.
    pub interface: String,
    /// The most bytes of a packet there.
    pub mtu: usize,
    /// Whether a UDP port of the wished range can be had; the reason when not.
    pub ports: Result<(), String>,
    /// Whether processes here can talk through shared memory; the reason when not.
    #[serde(default = "not_asked")]
    pub shared_memory: Result<(), String>,
    /// Whether a process may filter what its sockets receive; the reason when not.
    #[serde(default = "not_asked")]
    pub socket_filters: Result<(), String>,
    /// The largest receive buffer that a socket may ask for.
    pub receive_buffer_bytes: u64,
    /// Fast invalidation: other cores' stores are flushed by a system call.
    pub membarrier: bool,
    /// Page faults delivered to the faulting thread, for memory that is shared by pages.
    pub userfaultfd: Result<UffdFeatures, String>,
    /// What it can do for memory that is shared by pages.
    #[serde(default)]
    pub pages: PageReport,
    /// What protecting a page and a fault cost there; `None` where the host does not say.
    #[serde(default)]
    pub page_costs: Option<PageCosts>,
    /// What there is for programs with checks in their own code.
    #[serde(default)]
    pub inline: InlineReport,
    /// The library that lets system calls use shared memory; why there is none.
    #[serde(default = "not_asked_for_a_library")]
    pub wrapper: Result<String, String>,
    /// What processes may have.
    #[serde(default)]
    pub limits: Limits,
    /// Nanoseconds that the tag of a datagram takes: of 64 bytes, of 4096, of 60 KiB. 0 where the host does not say.
    #[serde(default)]
    pub tag_ns: [u64; 3],
    /// The largest part of the address space that can be reserved, in TiB.
    pub address_space_tib: u64,
    /// Mappings that a process may have.
    pub max_map_count: u64,
    /// Open descriptors that a process may have.
    pub open_files_max: u64,
    /// The clock that the kernel trusts.
    pub clocksource: String,
    /// Bytes of pointer, C long, alignment and page, and the byte order.
    pub layout: LayoutReport,
}

/// The parts of userfaultfd that count.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct UffdFeatures {
    /// Faults arrive as a signal in the faulting thread.
    pub sigbus: bool,
    /// Pages of shared memory files can be mapped in on demand.
    pub minor_shmem: bool,
    /// Write faults can be delivered.
    pub write_protect: bool,
    /// The kernel notes first writes by itself.
    pub write_protect_async: bool,
}

/// The protocol's memory layout in a form that travels.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LayoutReport {
    pointer_bytes: u8,
    long_bytes: u8,
    align_bytes: u8,
    big_endian: bool,
    page_bytes: u32,
}

/// What a host of another version does not say.
fn not_asked() -> Result<(), String> {
    Err("it does not say".to_string())
}

fn not_asked_for_a_library() -> Result<String, String> {
    Err("it does not say".to_string())
}

impl LayoutReport {
    fn here() -> LayoutReport {
        // SAFETY: asking for a number touches no memory.
        let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let layout = Layout::of_this_process(page_bytes as u32);
        LayoutReport {
            pointer_bytes: layout.pointer_bytes,
            long_bytes: layout.long_bytes,
            align_bytes: layout.align_bytes,
            big_endian: layout.big_endian,
            page_bytes: layout.page_bytes,
        }
    }

    fn layout(self) -> Layout {
        Layout {
            pointer_bytes: self.pointer_bytes,
            long_bytes: self.long_bytes,
            align_bytes: self.align_bytes,
            big_endian: self.big_endian,
            page_bytes: self.page_bytes,
        }
    }
}

impl HostReport {
    /// Examines this host.
    pub fn here(interface: &Interface, ports: PortChoice) -> HostReport {
        let number = |path: &str| std::fs::read_to_string(path).ok().and_then(|t| t.trim().parse().ok()).unwrap_or(0);
        HostReport {
            info: HostInfo::here(),
            installation: InstallationReport::here(),
            memory_free_mib: capacity::memory_free_bytes() >> 20,
            interface: interface.to_string(),
            mtu: interface.mtu,
            ports: select::bind(interface.address, ports).map(drop).map_err(|e| e.to_string()),
            shared_memory: comem_net::shm::probe().map_err(|e| e.to_string()),
            socket_filters: comem_net::selective::filters_work().map_err(|e| e.to_string()),
            receive_buffer_bytes: number("/proc/sys/net/core/rmem_max"),
            membarrier: comem_memory::guard::membarrier_works(),
            userfaultfd: probe_userfaultfd().map_err(|e| e.to_string()),
            pages: PageReport::here(),
            page_costs: PageCosts::here(),
            inline: InlineReport::here(),
            wrapper: preload::library().map(|library| library.display().to_string()),
            limits: Limits::here(),
            tag_ns: TAGGED_BYTES.map(tag_ns),
            address_space_tib: reservable_tib(),
            max_map_count: number("/proc/sys/vm/max_map_count"),
            open_files_max: open_files_max(),
            clocksource: std::fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource")
                .map_or_else(|_| "unknown".to_string(), |text| text.trim().to_string()),
            layout: LayoutReport::here(),
        }
    }

    /// What keeps this host from running nodes at all.
    pub fn obstacles(&self) -> Vec<String> {
        let mut list = Vec::new();
        list.extend(self.ports.as_ref().err().map(|why| format!("no UDP port can be had: {why}")));
        if self.mtu < 1280 {
            list.push(format!("the MTU of {} is below 1280 bytes", self.mtu));
        }
        list.extend(self.pages.obstacle());
        list.extend(self.limits.obstacles());
        list
    }

    /// What keeps another host from sharing memory with this one.
    pub fn differences(&self, there: &HostReport) -> Vec<String> {
        let mut list = Vec::new();
        if self.info.version != there.info.version {
            list.push(format!("it has Comem {}, this host {}", there.info.version, self.info.version));
        }
        let layout = self.layout.layout().differences(&there.layout.layout());
        if !layout.is_empty() {
            list.push(format!("memory looks different: {layout}"));
        }
        list
    }

    fn tags_in_words(&self) -> String {
        let [small, page, long] = self.tag_ns;
        match small {
            0 => "it does not say what they cost".to_string(),
            _ => format!(
                "on every datagram, unless --auth off is said; {small} ns for 64 bytes, {page} for a page, {} us for \
                 60 KiB",
                long.div_ceil(1000)
            ),
        }
    }

    /// The report as a table.
    pub fn lines(&self) -> Vec<(&'static str, String)> {
        let yes = |on: bool| if on { "yes" } else { "no" }.to_string();
        let layout = self.layout;
        let order = if layout.big_endian { "big" } else { "little" };
        let mut lines = vec![("comem", self.info.version.clone())];
        lines.extend(self.installation.lines());
        lines.extend([
            ("kernel", self.info.kernel.clone()),
            ("cores", self.info.cores.to_string()),
            ("memory", format!("{} MiB, {} MiB free", self.info.memory_mib, self.memory_free_mib)),
            ("network", self.interface.clone()),
            ("UDP ports", self.ports.as_ref().map_or_else(Clone::clone, |()| "can be had".to_string())),
            (
                "shared memory",
                match &self.shared_memory {
                    Ok(()) => "works between processes: jobs on this host alone take the backbone shm".to_string(),
                    Err(why) => format!("does not work between processes: jobs take the backbone udp: {why}"),
                },
            ),
            ("ucx", ucx_in_words()),
            (
                "socket filters",
                self.socket_filters.as_ref().map_or_else(|why| format!("no: {why}"), |()| "can be had".to_string()),
            ),
            ("receive buffer", format!("up to {} KiB", self.receive_buffer_bytes >> 10)),
            (
                "membarrier",
                if self.membarrier { yes(true) } else { "no: stores to shared objects will be slower".to_string() },
            ),
            ("userfaultfd", self.userfaultfd.as_ref().map_or_else(|why| format!("no: {why}"), UffdFeatures::text)),
            ("tags", self.tags_in_words()),
            ("address space", format!("{} TiB can be reserved", self.address_space_tib)),
            ("mappings", format!("up to {} (vm.max_map_count)", self.max_map_count)),
            ("open files", format!("up to {}", self.open_files_max)),
            ("clock", self.clocksource.clone()),
            (
                "system calls",
                match &self.wrapper {
                    Ok(library) => format!("take shared memory, by {library}"),
                    Err(why) => format!("may fail on shared memory: {why}"),
                },
            ),
            (
                "layout",
                format!("{}-bit, {order}-endian, pages of {} bytes", layout.pointer_bytes * 8, layout.page_bytes),
            ),
        ]);
        lines.extend(self.pages.lines(self.max_map_count));
        lines.extend(self.page_costs.map(|costs| ("a page", costs.text())));
        lines.extend(self.inline.lines());
        lines
    }
}

impl UffdFeatures {
    fn text(&self) -> String {
        let parts = [
            ("signal", self.sigbus),
            ("shared pages", self.minor_shmem),
            ("write faults", self.write_protect),
            ("writes noted by the kernel", self.write_protect_async),
        ];
        let names = |on: bool| parts.iter().filter(|p| p.1 == on).map(|p| p.0).collect::<Vec<_>>().join(", ");
        match names(false).as_str() {
            "" => format!("yes: {}", names(true)),
            missing => format!("in part: {}; lacks {missing}", names(true)),
        }
    }
}

/// How long a datagram is whose tag is measured.
const TAGGED_BYTES: [usize; 3] = [64, 4096, 60 << 10];

/// The least time of many that the tag of a datagram takes: other work on the host only makes it longer.
fn tag_ns(bytes: usize) -> u64 {
    let sealer = Sealer::new(Some(JobKey::new(sys::random())));
    let datagram = vec![0x5a; bytes];
    let repeats = (1 << 18) / (bytes as u64 + 1024);
    let once = || {
        let start = Instant::now();
        for _ in 0..repeats {
            std::hint::black_box(sealer.tag(std::hint::black_box(&datagram), Receiver::Node(NodeId(1))));
        }
        start.elapsed().as_nanos() as u64 / repeats
    };
    (0..8).map(|_| once()).min().unwrap_or(0).max(1)
}

/// Opens a userfaultfd and asks which features it has.
fn probe_userfaultfd() -> std::io::Result<UffdFeatures> {
    const USER_MODE_ONLY: libc::c_int = 1;
    const API: u64 = 0xaa;
    /// `_IOWR(0xaa, 0x3f, struct uffdio_api)`, three 64-bit numbers.
    const UFFDIO_API: libc::c_ulong = 0xc018_aa3f;
    const PAGEFAULT_FLAG_WP: u64 = 1 << 0;
    const SIGBUS: u64 = 1 << 7;
    const MINOR_SHMEM: u64 = 1 << 10;
    const WP_ASYNC: u64 = 1 << 15;
    // SAFETY: the call takes flags and touches no memory.
    let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | USER_MODE_ONLY) };
    let fd = sys::check(fd as libc::c_int)?;
    // SAFETY: the kernel has just made this descriptor for us alone.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let mut api = [API, 0, 0];
    // SAFETY: the record has the size that the request names, and outlives the call.
    sys::check(unsafe { libc::ioctl(fd.as_raw_fd(), UFFDIO_API as _, api.as_mut_ptr()) })?;
    let has = |feature: u64| api[1] & feature != 0;
    Ok(UffdFeatures {
        sigbus: has(SIGBUS),
        minor_shmem: has(MINOR_SHMEM),
        write_protect: has(PAGEFAULT_FLAG_WP),
        write_protect_async: has(WP_ASYNC),
    })
}

/// The largest power of two of TiB, up to 64, that can be reserved without memory behind it.
fn reservable_tib() -> u64 {
    let can_reserve = |tib: u64| {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let bytes = (tib << 40) as usize;
        // SAFETY: a fresh mapping at an address of the kernel's choice overlaps nothing.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_NONE, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            return false;
        }
        // SAFETY: the mapping was made right above, and nothing refers to it.
        unsafe { libc::munmap(at, bytes) };
        true
    };
    [64, 32, 16, 8, 4, 2, 1].into_iter().find(|tib| can_reserve(*tib)).unwrap_or(0)
}

fn open_files_max() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the record is ours and outlives the call.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    limit.rlim_max
}
/// Whether one-sided operations can go by UCX, and what carries them out.
fn ucx_in_words() -> String {
    use comem_net::ucx::{Library, rdma_devices};
    let devices = rdma_devices();
    let devices = match devices.as_slice() {
        [] => "no RDMA device: over tcp and shared memory, emulated".to_string(),
        names => format!("RDMA devices {}", names.join(", ")),
    };
    // What a processor carries out costs more than the messages of tokens.
    let locks = if rdma_devices().is_empty() { "; locks by --locks tokens" } else { ", perhaps --locks one-sided" };
    match Library::load().map(Library::version) {
        Ok((major, minor, release)) => format!("libucp {major}.{minor}.{release}; {devices} (--one-sided ucx{locks})"),
        Err(missing) => format!("no: {missing}; {devices}"),
    }
}
