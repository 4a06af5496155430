package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// peakRSS is the most memory this process has had resident, in bytes. It is
// the kernel's mark of this address space; getrusage's would still carry that
// of the process that started this one.
func peakRSS() int64 { return memoryOf(os.Getpid(), "VmHWM") }

// memoryOf is a number of bytes that the kernel keeps of a process: VmRSS is what is
// resident, VmHWM the most that was.
func memoryOf(pid int, what string) int64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := bytes.Cut(b, []byte(what+":"))
	fields := bytes.Fields(rest)
	if len(fields) == 0 {
		return 0
	}
	kib, _ := strconv.ParseInt(string(fields[0]), 10, 64)
	return kib << 10
}

// cpuTime is the processor time this process, or its finished children, used.
func cpuTime(children bool) time.Duration {
	who := unix.RUSAGE_SELF
	if children {
		who = unix.RUSAGE_CHILDREN
	}
	var u unix.Rusage
	if err := unix.Getrusage(who, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// childrenRSS is the most memory a finished child had resident, in bytes.
func childrenRSS() int64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_CHILDREN, &u); err != nil {
		return 0
	}
	return u.Maxrss << 10
}

// statAll lists dir and states every entry, as barely as can be: one
// descriptor, one call an entry. It gives how many there were.
func statAll(dir string) (int, error) {
	d, err := os.Open(dir)
	if err != nil {
		return 0, err
	}
	defer func() { _ = d.Close() }()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return 0, err
	}
	var st unix.Stat_t
	for _, name := range names {
		if err := unix.Fstatat(int(d.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return 0, fmt.Errorf("state %s: %w", name, err)
		}
	}
	return len(names), nil
}

// flush waits until the file system that holds path has written everything.
func flush(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(d.Fd())), d.Close())
}

// nap sleeps for less than a millisecond, which a Go timer rounds up to one.
func nap(d time.Duration) {
	t := unix.NsecToTimespec(d.Nanoseconds())
	_ = unix.Nanosleep(&t, nil) // waking early is as good
}

// processor names the machine's processor and how busy the machine was.
func processor() (name, load string) {
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		_, rest, _ := strings.Cut(string(b), "model name")
		line, _, _ := strings.Cut(rest, "\n")
		name = strings.Trim(line, " \t:")
	}
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		load, _, _ = strings.Cut(string(b), " ")
	}
	return name, load
}
