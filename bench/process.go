package bench

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"time"
)

// tick is the unit of CPU time in /proc: Linux reports 100 ticks per second on
// every machine.
const tick = 10 * time.Millisecond

// usage is a process's use of CPU and memory.
type usage struct {
	cpu      time.Duration // user and system time of all its threads, so far
	resident int64         // bytes of memory, now
}

// readUsage reads the usage of a process from /proc.
func readUsage(pid int) (usage, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return usage{}, fmt.Errorf("no process %d on this machine (or no /proc)", pid)
	case err != nil:
		return usage{}, fmt.Errorf("read usage of process %d: %w", pid, err)
	}
	u, err := parseStat(data, int64(os.Getpagesize()))
	if err != nil {
		return usage{}, fmt.Errorf("read usage of process %d: %w", pid, err)
	}
	return u, nil
}

// parseStat reads the fields utime, stime and rss (14, 15 and 24, counted from
// 1) of /proc/PID/stat. The second field is the program's name in parentheses;
// it may hold spaces and parentheses itself, so counting starts after the last.
func parseStat(data []byte, pageSize int64) (usage, error) {
	end := bytes.LastIndexByte(data, ')')
	if end < 0 {
		return usage{}, fmt.Errorf("stat has no program name: %.80q", data)
	}
	fields := bytes.Fields(data[end+1:]) // fields[0] is field 3
	const utime, stime, rss = 14 - 3, 15 - 3, 24 - 3
	if len(fields) <= rss {
		return usage{}, fmt.Errorf("stat ends after %d fields: %.80q", len(fields)+2, data)
	}
	var values [3]int64
	for i, field := range []int{utime, stime, rss} {
		n, err := strconv.ParseInt(string(fields[field]), 10, 64)
		if err != nil {
			return usage{}, fmt.Errorf("stat field %d: %w", field+3, err)
		}
		values[i] = n
	}
	return usage{cpu: time.Duration(values[0]+values[1]) * tick, resident: values[2] * pageSize}, nil
}

// loadCPU is the CPU time of this process; zero where the kernel does not
// report it.
func loadCPU() time.Duration {
	u, err := readUsage(os.Getpid())
	if err != nil {
		return 0
	}
	return u.cpu
}
