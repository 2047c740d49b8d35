//! The numbers themselves: `name: type = default, in low..high` and one line of explanation each.
//!
//! Times are in the unit that ends their name; what is not a time is a count of what the name says. To add a number,
//! add a line here, and make `docs/tuning.md` anew (`cargo test -p comem-protocol tuning` says how).

use super::{Number, Value};

macro_rules! tuning {
    ($(
        $(#[doc = $about:literal])+
        $part:ident: $Part:ident {
            $($(#[doc = $doc:literal])+ $name:ident: $ty:ty = $default:expr, in $low:literal .. $high:literal;)+
        }
    )+) => {
        $(
            $(#[doc = $about])+
            #[derive(Clone, Copy, PartialEq, Eq, Debug)]
            pub struct $Part {
                $($(#[doc = $doc])+ pub $name: $ty,)+
            }

            impl $Part {
                /// The defaults.
                pub const DEFAULT: $Part = $Part { $($name: $default,)+ };
            }

            impl Default for $Part {
                fn default() -> $Part {
                    $Part::DEFAULT
                }
            }
        )+

        /// All numbers, by subject.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct Tuning {
            $($(#[doc = $about])+ pub $part: $Part,)+
        }

        impl Tuning {
            /// The defaults.
            pub const DEFAULT: Tuning = Tuning { $($part: $Part::DEFAULT,)+ };

            /// The subjects, and what each is about.
            pub const SUBJECTS: &'static [(&'static str, &'static str)] =
                &[$((stringify!($part), concat!($($about),+)),)+];

            /// All numbers, in their order.
            pub const NUMBERS: &'static [Number] = &[$($(
                Number {
                    name: concat!(stringify!($part), ".", stringify!($name)),
                    doc: concat!($($doc),+),
                    is_switch: <$ty as Value>::IS_SWITCH,
                    default: $default as u64,
                    range: ($low, $high),
                    get: |tuning| tuning.$part.$name.to_count(),
                    set: |tuning, value| tuning.$part.$name = <$ty as Value>::from_count(value),
                },
            )+)+];
        }
    };
}

tuning! {
    /// Page tables: what is presumed of the writes to come, and what is protected, mapped and scanned together.
    pages: PageTuning {
        /// Whether homes send pages unasked to nodes that ask for them again and again.
        push: bool = true, in 0..1;
        /// After so many questions in a row a page is sent unasked.
        push_after: u8 = 2, in 1..31;
        /// Most questions in a row that are wanted after pages were of no use.
        push_after_max: u8 = 16, in 1..100;
        /// So few units of a chunk are sent after one question less, where barriers alone order writes.
        push_early_units_max: usize = 8, in 0..512;
        /// Whether readers count that asked before the home was known to write the unit.
        push_new_readers: bool = true, in 0..1;
        /// Readers of a unit that are remembered.
        push_readers_max: usize = 16, in 1..1024;
        /// A page sent in vain counts as much as so many that were of use.
        push_unused_weight: u8 = 6, in 0..250;
        /// After so many more pages of no use, twice as many questions are wanted.
        push_unused_step: u8 = 8, in 1..60;
        /// Whether notes of pages stay that will probably be written again, where the kernel notes writes.
        write_predictor: bool = true, in 0..1;
        /// Notes stay from such a part of a chunk on, given as its inverse; 0: of no number of home pages.
        predicted_part: u32 = 8, in 0..512;
        /// Most epochs from one find of a page that is written steadily to the next.
        rewrite_epochs: u8 = 2, in 0..64;
        /// So much more often may a page be found unchanged than changed before its note is taken.
        unchanged_max: u8 = 4, in 0..100;
        /// An unchanged home page weighs so much where others cannot take pages by themselves.
        unchanged_weight: u8 = 5, in 0..100;
        /// Most finds of a written page before its note is left again after that was in vain.
        doubts_max: u8 = 62, in 0..120;
        /// Whether home pages, few of many, are compared with a twin instead of protected.
        home_twin: bool = true, in 0..1;
        /// Whether copies that were written in several intervals of an epoch stay writable.
        leave_writable: bool = true, in 0..1;
        /// Whether a home page that its home wrote in the last epoch is presumed written again, where writes fault.
        assume_dirty: bool = true, in 0..1;
        /// Whether copies that ended together are fetched together when one is written again.
        write_prefetch: bool = true, in 0..1;
        /// From so many such writes in an epoch on, where some of the last group was of no use.
        write_prefetch_after: u8 = 3, in 1..100;
        /// Whether the first such write is enough where all of the last group was of use.
        write_prefetch_trust: bool = true, in 0..1;
        /// Whether copies that were in use count as used again soon, after they have ended.
        reuse: bool = true, in 0..1;
        /// A copy used so many epochs after it ended has not earned that a barrier fetches it.
        long_epochs: u8 = 4, in 1..100;
        /// Whether a write fetches as many units as are in use before it.
        extend_writes: bool = true, in 0..1;
        /// So many units before a written one are looked at for that.
        extend_writes_units_max: usize = 3, in 0..16;
        /// Most barriers in a row at which a copy is fetched ahead without being seen in use.
        trust_max: u8 = 64, in 1..100;
        /// Whether copies that end at a barrier and are fetched again stay mapped.
        update_in_place: bool = true, in 0..1;
        /// Whether a page is mapped while its bytes are on their way, where no other thread can see it.
        premap: bool = true, in 0..1;
        /// Whether neighbours of a home page that is asked for alone are protected with it.
        batch_protect: bool = true, in 0..1;
        /// Most of these on each side.
        batch_protect_units_max: usize = 16, in 0..512;
        /// Most units between two runs that are protected in one call.
        protect_gap_units: usize = 8, in 0..512;
        /// Whether idle pages are unmapped, so that no close scans them.
        untrack_idle: bool = true, in 0..1;
        /// Whether stores to page tables that nobody writes are forbidden, so that no close scans them.
        forbid_writes: bool = true, in 0..1;
        /// After so many closes in which nothing of a page table was written.
        quiet_closes: u32 = 8, in 0..65536;
        /// Whether copies that come in long runs have no twins until their page table is stored to.
        twinless: bool = true, in 0..1;
        /// Such runs have at least so many pages.
        twinless_pages_min: u32 = 16, in 1..512;
        /// And nobody has stored to the page table for so many closes.
        twinless_closes: u32 = 64, in 0..65536;
        /// Most untracked units that are mapped again with the one that is touched.
        remap_units_max: usize = 16, in 1..512;
        /// Whether more units are offered for one-sided fetches than were asked for.
        offer_ahead: bool = true, in 0..1;
        /// So many units are offered for one-sided fetches with each that was asked for.
        offer_growth: usize = 4, in 0..512;
        /// Most units that ended before between two runs of copies that end together.
        invalidate_gap_units: usize = 128, in 0..512;
        /// After so many scans that met notes which say nothing, these are taken.
        scans_before_collect: u32 = 128, in 1..65536;
        /// Whether a fault on home memory that nobody shares maps more than its unit.
        map_ahead: bool = true, in 0..1;
        /// Most pages of home memory that nobody shares that one fault maps: as many as a fetch asks for.
        home_map_pages: u32 = 60, in 1..512;
        /// Most shared home units that one fault maps.
        home_map_shared_units: usize = 32, in 1..512;
        /// Fetches of so few pages are answered in one look, and their twins are looked at soon.
        few_pages: u32 = 8, in 0..512;
        /// Runs of so many pages keep their memory when their home goes elsewhere.
        keep_memory_pages: u32 = 16, in 0..512;
    }

    /// Homes of pages: first touch, migration, and the bound on both.
    homes: HomeTuning {
        /// Whether untouched pages without a placement belong to whoever touches them first.
        first_touch: bool = true, in 0..1;
        /// Whether a page that several nodes wrote has one of them as its keeper, and goes to no other for a while.
        keeper: bool = true, in 0..1;
        /// For so many epochs after several nodes wrote a page.
        contested_epochs: u32 = 8, in 0..1000;
        /// Pages so close to each other have the same keeper.
        same_keeper_pages: u32 = 16, in 1..65536;
        /// When so many contested units are remembered, those are forgotten whose time is over.
        contested_units_max: usize = 65536, in 0..1048576;
        /// A look at what others have claimed pays if it found so many pages.
        claims_worth_a_look: u32 = 32, in 1..65536;
        /// Most refused claims between two such looks.
        refusals_between_looks_max: u32 = 65536, in 1..1048576;
    }

    /// What nodes tell each other of their writes, and pages that come with it.
    notices: NoticeTuning {
        /// Whether nodes presume from how intervals ended lately that barriers alone order writes.
        sync_phase: bool = true, in 0..1;
        /// After an epoch with locks so many without them must come before that is presumed again.
        quiet_epochs: u8 = 16, in 0..120;
        /// So many are enough as long as there were locks in the first epochs alone.
        quiet_epochs_at_first: u8 = 2, in 0..120;
        /// Whether pages travel with a lock's token.
        piggyback: bool = true, in 0..1;
        /// Most pages that an acquirer names for that.
        piggyback_pages_max: u32 = 8, in 0..8;
        /// Most pages sent unasked that are kept for a barrier that has not opened.
        coming_pages_max: usize = 1024, in 0..1048576;
        /// Most runs of new memory that are told apart from what was sent before it was allocated.
        allocated_runs_max: usize = 256, in 1..65536;
        /// Pages sent unasked are given up after so many epochs without use.
        unused_epochs_max: u32 = 8, in 0..1000;
    }

    /// Diffs that are asked of sets of nodes and told to sets: engine `multicast`.
    multicast: MulticastTuning {
        /// After so many round trips without an answer a writer is asked point to point.
        repair_round_trips: u64 = 4, in 1..100;
        /// But not sooner than this.
        repair_min_us: u64 = 2_000, in 100..1000000;
        /// Most writers that are asked at a time.
        writers_max: usize = 16, in 1..1024;
        /// After so many epochs in a row with diffs that were of no use a node leaves a copyset.
        leave_after: u8 = 4, in 1..250;
        /// Diffs of more bytes are asked for point to point.
        told_bytes_max: usize = 16_384, in 64..32768;
        /// Whether what is written to pages for which nodes ask at the same time is told before they arrive at
        /// barriers.
        early: bool = true, in 0..1;
        /// Of each unit so many times its bytes are kept that came unasked.
        unasked_units_max: usize = 2, in 1..64;
        /// Most bytes of diffs that travel with a lock's token; 0: none do.
        carried_bytes_max: usize = 32_768, in 0..1048576;
        /// After so many epochs nodes say how they used units, and these get other managers and ways.
        window_epochs: u32 = 8, in 1..1024;
        /// Whether a unit's manager becomes the node that uses it most.
        managers_move: bool = true, in 0..1;
        /// Whether diffs of units go to their managers alone where that costs fewer bytes.
        homed: bool = true, in 0..1;
        /// Where more nodes than this write a unit they tell sets.
        homed_writers_max: usize = 4, in 2..64;
        /// Diffs go to the manager where they have this part of a unit's bytes for each node that reads it.
        homed_percent: u64 = 100, in 0..1600;
    }

    /// When a node gives a lock's token away, and when those that ask for it wait.
    locks: LockTuning {
        /// Whether requests for tokens are deferred at all for the sake of the node's own threads.
        defers: bool = true, in 0..1;
        /// Whether a token that two nodes want all the time stays for a while.
        retention: bool = true, in 0..1;
        /// For so long.
        retained_us: u64 = 250, in 0..10000000;
        /// A node that asks so soon after a token has left wants it all the time.
        soon_us: u64 = 50, in 0..100000000;
        /// So often in a row it must have asked soon before the token stays.
        soon_in_a_row: u8 = 2, in 0..100;
        /// So long after a message was deferred, the service thread looks at the clock now and then.
        lately_us: u64 = 2_000, in 0..10000000;
        /// Whether nodes take turns with all their tokens.
        turns: bool = true, in 0..1;
        /// How long a turn lasts at most.
        turn_us: u64 = 32_000, in 0..10000000;
        /// How long a thread waits for a lock before its node's turn is over.
        lock_wait_us: u64 = 120, in 0..10000000;
        /// So many remote acquires say whether nodes take turns; 0: they always do.
        measured_acquires: u32 = 16, in 0..4294967295;
        /// Turns are taken where remote acquires follow one another as closely as this on average.
        acquires_every_us: u64 = 300, in 0..100000000;
        /// The same for tokens that come back and are retained each time.
        returns_every_us: u64 = 800, in 0..100000000;
        /// And where threads wait for tokens this part of the time.
        waited_percent: u64 = 60, in 0..100;
        /// So long turns are taken before it is measured again whether they are worth it.
        turns_for_us: u64 = 100_000, in 0..100000000;
        /// Whether a node requests the tokens that have left together when a turn begins.
        request_ahead: bool = true, in 0..1;
        /// A token that takes longer than this by itself is expensive; 0: all are.
        expensive_us: u64 = 4, in 0..10000000;
        /// So many tokens in a row say whether the others are expensive.
        expensive_in_a_row: u32 = 64, in 1..65536;
        /// A node requests the tokens that have left when they are as many as this at least.
        request_ahead_min: usize = 8, in 1..65536;
        /// So many at most.
        request_ahead_max: usize = 4096, in 1..65536;
        /// A thread polls that does nothing for so many calls in a row but take the same few locks.
        polling_calls: u32 = 64, in 1..65536;
        /// At intervals of at most this.
        polling_every_ns: u64 = 3_200, in 0..1000000000;
        /// Whether free tokens are published in shared memory.
        publishing: bool = true, in 0..1;
        /// So many published tokens are judged at a time.
        published_judged: u32 = 16, in 1..65536;
        /// Publishing pauses where they followed one another as closely as this on average.
        published_every_us: u64 = 150, in 0..10000000;
        /// Or where one of so many was retracted.
        retracted_one_in: u32 = 4, in 0..65536;
        /// How long it pauses at first.
        pause_min_us: u64 = 50_000, in 0..100000000;
        /// And at most: each pause is twice as long as the one before.
        pause_max_us: u64 = 1_600_000, in 0..1000000000;
        /// Whether a long close goes table by table while requests for tokens wait.
        slices: bool = true, in 0..1;
        /// From so many written pages on, a close is a long one.
        long_close_pages: u32 = 256, in 0..1048576;
        /// From so many active page tables on, where the kernel does not say how much was written.
        long_close_tables: usize = 4, in 0..65536;
        /// So soon after a close, little can have been written.
        closed_lately_us: u64 = 1_000, in 0..10000000;
        /// How often a lock may change hands within a node while another node waits for it.
        local_hands_max: u32 = 16, in 1..255;
        /// How many threads that have not queued may take a lock that is a word in a row, while others wait.
        bypasses_max: u8 = 16, in 0..255;
        /// Most releases by which a token stays, after it was wanted again where it was published.
        kept_releases_max: u8 = 127, in 0..127;
        /// While something waits, threads that release locks look at the clock once in so many calls.
        calls_between_looks: u32 = 16, in 1..65536;
    }

    /// What a lock protects, as far as acquires show it.
    working_set: WorkingSetTuning {
        /// Whether it is remembered which pages belong to which lock.
        follow: bool = true, in 0..1;
        /// Whether barriers pass over pages that belong to locks.
        pass_over: bool = true, in 0..1;
        /// Pages that are followed.
        pages_max: usize = 4096, in 1..1048576;
        /// Locks of which it is remembered what their acquires fetched.
        locks_max: usize = 1024, in 1..1048576;
        /// From this score on, a page belongs to its lock.
        sure_score: u8 = 2, in 0..100;
        /// The highest score.
        score_max: u8 = 6, in 0..100;
    }

    /// What is fetched before it is used.
    prefetch: PrefetchTuning {
        /// Whether faults that follow each other fetch ahead; `--prefetch off` turns all of it off.
        stride: bool = true, in 0..1;
        /// The second run of a sequence of faults, in units.
        second_run_units: usize = 8, in 1..60;
        /// The third; from here on the next run is fetched ahead of the fault.
        third_run_units: usize = 30, in 1..60;
        /// All behind it.
        run_units_max: usize = 60, in 1..60;
        /// The longest stride that is taken for one, in pages.
        stride_pages_max: u32 = 256, in 1..511;
        /// Whether the usual length of sequences bounds what is fetched.
        usual_length: bool = true, in 0..1;
        /// An end that is known to so many pages is known.
        end_tolerance_pages: u32 = 8, in 0..512;
        /// So many sequences must agree on it.
        agreeing_ends: u8 = 2, in 1..100;
        /// Whether strides that end early raise doubts of fetching with a stride.
        doubt: bool = true, in 0..1;
        /// With so much doubt nothing is fetched with a stride while copies have to go for it.
        doubt_enough: usize = 4, in 1..1000;
        /// The most doubt.
        doubt_max: usize = 16, in 1..1000;
        /// So many steps in a row take a bit of the doubt away.
        even_steps: usize = 60, in 1..65536;
        /// Whether a sequence of which too much ended unused fetches less at the next synchronisations.
        wary: bool = true, in 0..1;
        /// At most so many of them.
        wary_max: u8 = 64, in 1..100;
        /// Whether acquires and barriers fetch copies again that were in use.
        acquire: bool = true, in 0..1;
        /// Most pages of a request of theirs whose answer brings no bytes.
        acquire_direct_pages: u32 = 128, in 1..512;
        /// Most requests of theirs under way whose answers bring bytes.
        acquire_under_way: usize = 2, in 1..64;
        /// Whether misses at rising addresses bring lines ahead.
        lines: bool = true, in 0..1;
        /// So many such misses in a row do.
        line_misses: u32 = 2, in 1..64;
        /// A miss at most so many lines behind the end of a run goes on with it.
        line_gap_max: u64 = 3, in 0..65536;
        /// Most pages of a unit whose memory is brought near before it comes.
        near_unit_pages_max: usize = 4, in 0..256;
    }

    /// The bound on copies, and looks for writes that cost more than they bring.
    cache: CacheTuning {
        /// What is fetched ahead takes such a part of the cache at most, given as its inverse.
        prefetch_part: u64 = 8, in 1..65536;
        /// Diffs that stay with their writers may take such a part of what copies may, given as its inverse.
        kept_diffs_part: u64 = 8, in 1..65536;
        /// Whether looks for writes on idle pages are counted, so that these are untracked in the end.
        scan_cost: bool = true, in 0..1;
        /// What a look costs.
        look_ns: u64 = 900, in 0..1000000;
        /// And so much more for each page.
        look_page_ns: u64 = 5, in 0..10000;
        /// What it costs to untrack a stretch and have a page of it back.
        return_ns: u64 = 9_000, in 1..100000000;
        /// And so much more for each page.
        return_page_ns: u64 = 140, in 0..100000;
        /// A stretch is untracked the first time when its looks have cost so many quarters of its return.
        quarters: u32 = 4, in 1..1048576;
        /// At the earliest.
        quarters_min: u32 = 1, in 1..1048576;
        /// At the latest.
        quarters_max: u32 = 1024, in 1..1048576;
    }

    /// How threads wait for the network. `COMEM_WAIT` says whether they spin at all.
    wait: WaitTuning {
        /// How long a wait spins before it blocks, on a host with a core to spare.
        spin_us: u64 = 300, in 0..1000000;
        /// Whether waits spin no more for a while where spinning brought nothing.
        spin_budget: bool = true, in 0..1;
        /// So much spinning in vain ends it.
        spin_budget_max: u16 = 16, in 1..1000;
        /// How long a node whose threads look after its service socket is left to itself.
        unattended_us: u64 = 3, in 0..1000000;
        /// How long the service thread looks whether there is more, after something has come; 0: not at all.
        poll_us: u64 = 100, in 0..1000000;
        /// And after all that has come meanwhile.
        poll_max_us: u64 = 5_000, in 0..1000000;
        /// So many messages at most a thread takes in where it has other things to do.
        messages_at_a_look: usize = 64, in 1..65536;
        /// How often the service thread looks after sockets that nobody attends.
        tick_ms: u64 = 50, in 10..10000;
        /// If it is awake so soon before that, it does so at once.
        tick_early_ms: u64 = 8, in 0..10;
        /// How long a thread waits between two looks at a held one-sided lock, at first.
        lock_pause_ns: u64 = 200, in 1..1000000;
        /// And at most.
        lock_pause_max_ns: u64 = 8_000, in 1..10000000;
        /// How long a thread sleeps at a word that nodes share, at most, before it looks whether the job goes on.
        sleep_max_ms: u64 = 50, in 1..1000;
        /// How long it sleeps in its socket instead, while messages of its own wait for acknowledgements.
        sleep_with_messages_us: u64 = 1_000, in 1..1000000;
        /// How long a thread waits between two looks at a one-sided lock of another host, at first.
        far_pause_us: u64 = 4, in 1..1000000;
        /// And at most.
        far_pause_max_us: u64 = 64, in 1..1000000;
        /// How long it sleeps there once it has looked for long, at first.
        far_sleep_us: u64 = 50, in 1..1000000;
        /// And at most.
        far_sleep_max_us: u64 = 1_000, in 1..1000000;
        /// Most looks at a socket for pages that come unasked.
        push_looks_max: usize = 64, in 0..65536;
    }

    /// Repetitions of what was not acknowledged. Waits grow from the least to the longest.
    link: LinkTuning {
        /// Wait before the first repetition while nothing is known of a node, where threads spin.
        retry_first_us: u64 = 5_000, in 100..10000000;
        /// The same where threads block, and answer later.
        retry_first_blocking_us: u64 = 12_000, in 100..10000000;
        /// Least wait before a repetition, where threads spin.
        retry_min_us: u64 = 1_000, in 100..10000000;
        /// The same where threads block.
        retry_min_blocking_us: u64 = 10_000, in 100..10000000;
        /// Longest wait where a node is near.
        retry_max_ms: u64 = 200, in 1..100000;
        /// The same where it is far, or not known to be near.
        retry_far_ms: u64 = 2_000, in 1..100000;
        /// First wait before a request is repeated whose receiver has noted it.
        probe_min_ms: u64 = 20, in 1..100000;
        /// Longest such wait.
        probe_max_ms: u64 = 500, in 1..100000;
        /// Requests that a thread may have under way.
        requests_per_thread: usize = 64, in 2..1024;
    }

    /// Objects, pages and lines under `msi`.
    msi: MsiTuning {
        /// How long a granted unit stays although others want it, at its access's first two faults.
        residency_us: u64 = 60, in 20..1000000;
        /// So often that doubles, where an access needs two units and never has both.
        residency_doublings_max: u32 = 6, in 6..10;
        /// Most lines' units that are asked for ahead of one that a load wants.
        ahead_units_max: u64 = 16, in 0..1024;
        /// Pages fetched with another take such a part of the cache at most, given as its inverse.
        prefetch_part: u64 = 16, in 1..65536;
        /// Most pages that are given back at once beyond those that a fault needs.
        give_back_pages_max: u64 = 64, in 0..65536;
    }

    /// Barriers, conditions and dealt work.
    sync: SyncTuning {
        /// Most nodes that tell each other of their arrival at a barrier directly; more form a tree.
        barrier_direct_nodes_max: usize = 4, in 2..64;
        /// An arrival is first repeated after so long, where round trips are shorter.
        barrier_retry_ms: u64 = 10, in 1..10000;
        /// After so long at least, once somebody has noted it.
        barrier_retry_noted_ms: u64 = 50, in 1..10000;
        /// And at most.
        barrier_retry_max_ms: u64 = 200, in 1..10000;
        /// How long it first waits at most where round trips are long.
        barrier_retry_far_ms: u64 = 2_000, in 1..100000;
        /// A batch of dealt items that was used up in less time is followed by a larger one.
        batch_short_us: u64 = 500, in 0..10000000;
        /// One that took longer, by a smaller one.
        batch_long_us: u64 = 2_000, in 0..10000000;
        /// Most chunks of a batch.
        batch_chunks_max: u64 = 1048576, in 1..1073741824;
        /// Whether nodes hear that nobody waits for their signals, and send none.
        signal_suppression: bool = true, in 0..1;
        /// So many vain signals of a node are enough at first.
        vain_signals: u32 = 2, in 1..65536;
        /// And at most: each time four times as many.
        vain_signals_max: u32 = 8192, in 1..1048576;
        /// A critical section waits so long for a collective call that itself waits for others to end.
        section_wait_ms: u64 = 100, in 1..100000;
        /// So often that doubles.
        section_wait_doublings_max: u32 = 10, in 0..10;
    }
}
