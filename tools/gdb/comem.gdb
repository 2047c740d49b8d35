# Settings and helpers for debugging a node of a Comem job with gdb. `comem run --gdb N PROGRAM` loads this file by itself;
# by hand: gdb -x comem.gdb. docs/debugging.md explains.

# A fault on a shared page that is not here is ordinary work: the runtime's handler fetches the page and the access
# goes on. A fault of the program's own is passed on by that handler, and ends the program as ever.
handle SIGBUS SIGSEGV nostop noprint pass
# A node says where its threads wait when it gets this one.
handle SIGUSR1 nostop noprint pass

# The control channel is a descriptor that a shell in between might close.
set startup-with-shell off
set print thread-events off
set pagination off

define comem-prefetch
  if $argc < 1 || $argc > 2
    printf "usage: comem-prefetch ADDRESS [BYTES]\n"
  else
    set $comem_bytes = 1
    if $argc == 2
      set $comem_bytes = $arg1
    end
    # By its type, since debugging information may leave that out.
    call ((int (*)(const void *, unsigned long, int))comem_prefetch)((const void *)($arg0), $comem_bytes, 0)
  end
end
document comem-prefetch
Fetch shared pages, so that print and x can show them:
comem-prefetch ADDRESS [BYTES], each without spaces in it.
gdb cannot read a shared page that is not on this node. It says "Cannot access memory"
or, with the detector mprotect, shows what the page held last. This asks the runtime, in
the selected thread, to fetch the pages first. Use it in a thread that stands in the
program, not inside Comem.
end

define comem-stop-on-faults
  handle SIGBUS SIGSEGV stop print pass
end
document comem-stop-on-faults
Stop at every fault from now on, those on shared pages included; `continue` lets Comem handle it.
end

define comem-ignore-faults
  handle SIGBUS SIGSEGV nostop noprint pass
end
document comem-ignore-faults
Leave faults to Comem again, as at the beginning.
end

define comem-waits
  call (int)kill((int)getpid(), 10)
  printf "the node says on standard error where its threads wait, once it goes on\n"
end
document comem-waits
Let the node say where its threads wait (for which page, lock or barrier), as `kill -USR1 PID` does.
end

define comem-threads
  thread apply all -q -s backtrace 4
end
document comem-threads
Show the innermost four calls of every thread.
end

define comem-fault
  print $_siginfo._sifields._sigfault.si_addr
end
document comem-fault
The address of the fault at which the selected thread stopped (after comem-stop-on-faults).
end
