package main

import (
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// licence is the licence of one module.
type licence struct {
	name string // SPDX
	text string // all licence and notice files
}

// licencesOf returns the licence of each module in a program. A module without a licence
// that we know is an error: it may be one that we must not link.
func (r *release) licencesOf(program string) (map[string]licence, error) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return nil, err
	}
	args := []string{"mod", "download", "-json"}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		args = append(args, m.Path+"@"+m.Version)
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = r.root
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("find modules: %w", err)
	}
	all := map[string]licence{}
	var errs []error
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var m struct{ Path, Dir string }
		if err := decoder.Decode(&m); errors.Is(err, io.EOF) {
			return all, errors.Join(errs...)
		} else if err != nil {
			return nil, err
		}
		if all[m.Path], err = readLicence(m.Dir); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", m.Path, err))
		}
	}
}

// readLicence reads the licence files of a module.
func readLicence(dir string) (licence, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return licence{}, err
	}
	var l licence
	for _, entry := range entries {
		upper := strings.ToUpper(entry.Name())
		if entry.IsDir() || !slices.ContainsFunc([]string{"LICENSE", "LICENCE", "COPYING", "NOTICE"}, func(p string) bool { return strings.HasPrefix(upper, p) }) {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			return licence{}, err
		}
		l.text += strings.TrimSpace(string(data)) + "\n\n"
		if !strings.HasPrefix(upper, "NOTICE") && l.name == "" {
			l.name = nameLicence(string(data))
		}
	}
	if l.name == "" {
		return l, errors.New("no licence file, or none that is known")
	}
	return l, nil
}

// nameLicence names a licence by the words that only it has.
func nameLicence(text string) string {
	text = strings.ToLower(strings.Join(strings.Fields(text), " "))
	for _, known := range []struct{ name, words string }{
		{"Apache-2.0", "apache license version 2.0"},
		{"MPL-2.0", "mozilla public license version 2.0"},
		{"MPL-2.0", "mozilla public license, version 2.0"},
		{"BSD-3-Clause", "neither the name"},
		{"BSD-3-Clause", "the names of its contributors may not be used"},
		{"BSD-2-Clause", "redistributions of source code must retain"},
		{"MIT", "permission is hereby granted, free of charge"},
		{"ISC", "permission to use, copy, modify, and/or distribute"},
		{"ISC", "permission to use, copy, modify, and distribute"},
	} {
		if strings.Contains(strings.ReplaceAll(text, "apache license, version", "apache license version"), known.words) {
			return known.name
		}
	}
	return ""
}

// licences writes the licences of everything that is linked into one file.
func (r *release) licences(program string) error {
	all, err := r.licencesOf(program)
	if err != nil {
		return err
	}
	goLicence, err := os.ReadFile(filepath.Join(runtime.GOROOT(), "LICENSE"))
	if err != nil {
		return fmt.Errorf("the licence of Go: %w", err)
	}
	all["the Go standard library"] = licence{"BSD-3-Clause", string(goLicence)}
	var b strings.Builder
	b.WriteString("Exeunt contains the following software under the following licences.\n\n")
	var paths []string
	for path := range all {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	for _, path := range paths {
		fmt.Fprintf(&b, "%s\n%s (%s)\n\n%s\n", strings.Repeat("=", 80), path, all[path].name, all[path].text)
	}
	return os.WriteFile(filepath.Join(r.into, "THIRD-PARTY-LICENCES"), []byte(b.String()), 0o644)
}
