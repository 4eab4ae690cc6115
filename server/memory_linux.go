package server

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"syscall"
)

// forgetImage gives back the parts of the program's own file that are mapped
// into memory. Starting touches most of it, once: every package prepares itself,
// and the kernel maps sixteen pages for each that is touched. What serving
// needs comes back by itself, from the page cache.
//
// Only mappings that cannot be written are given back: they hold what the file
// holds.
func forgetImage() error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		// 00400000-04a3c000 r-xp 00000000 fd:00 1234   /usr/bin/exeunt
		fields := strings.Fields(lines.Text())
		if len(fields) < 6 || fields[5] != program || !strings.HasPrefix(fields[1], "r-") {
			continue
		}
		var from, to uintptr
		if _, err := fmt.Sscanf(fields[0], "%x-%x", &from, &to); err != nil {
			return fmt.Errorf("read mapping %q: %w", fields[0], err)
		}
		if _, _, errno := syscall.Syscall(syscall.SYS_MADVISE, from, to-from, syscall.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("give back %s: %w", fields[0], errno)
		}
	}
	return nil
}
