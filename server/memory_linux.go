package server

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"syscall"
)

// releaseImagePages releases the resident pages of the program's own file. The start
// touches most of the file once: every package initializes itself, and the kernel
// maps sixteen pages for each page touched. Pages that are needed again come back
// from the page cache.
//
// Only read-only mappings are released: their content equals the file.
func releaseImagePages() error {
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
			return fmt.Errorf("release mapping %s: %w", fields[0], errno)
		}
	}
	return nil
}
