package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// helpers is added to the package.
const helpers = `
import (
	"cmp"
	"os"
	"strconv"
	"sync"
)

var (
	mutantOn, _  = strconv.Atoi(os.Getenv("EXEUNT_MUTANT"))
	mutantsFile  = os.Getenv("EXEUNT_MUTANTS_REACHED")
	mutantsKnown sync.Map
)

func mutantIs(number int) bool {
	if mutantsFile == "" {
		return number == mutantOn
	}
	if _, known := mutantsKnown.LoadOrStore(number, true); !known {
		if f, err := os.OpenFile(mutantsFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err == nil {
			_, _ = f.WriteString(strconv.Itoa(number) + "\n")
			_ = f.Close()
		}
	}
	return false
}

func mutantZero[T any](number int, v T) T {
	if mutantIs(number) {
		v = *new(T)
	}
	return v
}

func mutantError(number int, err error) error { return mutantZero(number, err) }

func mutantBound[T cmp.Ordered](number int, op string, a, b T) bool {
	other := mutantIs(number) && a == b
	switch op {
	case "<":
		return a < b || other
	case "<=":
		return a <= b && !other
	case ">":
		return a > b || other
	}
	return a >= b && !other
}

var _, _, _ = mutantZero[int], mutantError, mutantBound[int]
`

// place is where the compiler found something.
var place = regexp.MustCompile(`(?m)^(\S+\.go):(\d+):(\d+): `)

// write writes the changed files of a package, and the overlay that puts them in the place of the originals. The mutants that
// the compiler refuses are left out.
func write(ctx context.Context, dir string, all []*mutant) (overlay string, err error) {
	folder, overlay := filepath.Dir(all[0].file), filepath.Join(dir, "overlay.json")
	for {
		files, spans, err := change(all)
		if err != nil {
			return "", err
		}
		replaced := map[string]string{}
		for file, text := range files {
			here, err := filepath.Abs(file)
			if err != nil {
				return "", err
			}
			replaced[here] = filepath.Join(dir, filepath.Base(file))
			if err := os.WriteFile(replaced[here], text, 0o600); err != nil {
				return "", err
			}
		}
		list, err := json.Marshal(map[string]any{"Replace": replaced})
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(overlay, list, 0o600); err != nil {
			return "", err
		}
		out, err := run(ctx, ".", nil, "go", "build", "-gcflags=-e", "-overlay", overlay, "./"+folder)
		if err == nil {
			return overlay, nil
		}
		progress := false
		for _, m := range place.FindAllSubmatch(out, -1) {
			file := filepath.Join(folder, filepath.Base(string(m[1])))
			progress = refuse(files[file], spans[file], string(m[2]), string(m[3])) || progress
		}
		if !progress {
			return "", fmt.Errorf("%w\n%s", err, out)
		}
	}
}

// span is where a mutant is in the changed file.
type span struct {
	*mutant
	from, to int
}

// refuse marks the innermost mutant at a place of a changed file: that one the compiler does not take.
func refuse(text []byte, spans []*span, line, column string) bool {
	l, _ := strconv.Atoi(line)
	at, _ := strconv.Atoi(column)
	for range l - 1 {
		end := bytes.IndexByte(text, '\n')
		at, text = at+end+1, text[end+1:]
	}
	var inner *span
	for _, s := range spans {
		if !s.refused && s.from < at && at <= s.to && (inner == nil || s.to-s.from <= inner.to-inner.from) {
			inner = s
		}
	}
	if inner != nil {
		inner.refused = true
	}
	return inner != nil
}

// edit is text at a place of a file, for a number of bytes of the original.
type edit struct {
	at, skip, order, tie int
	text                 string
	mutant               *mutant
	end                  bool
}

// change puts mutants into the files that they are in.
func change(all []*mutant) (map[string][]byte, map[string][]*span, error) {
	edits := map[string][]edit{}
	for _, m := range all {
		if m.refused {
			continue
		}
		text := strings.NewReplacer("NUMBER", strconv.Itoa(m.number))
		edits[m.file] = append(edits[m.file],
			edit{at: m.from, order: -m.to, tie: m.number, text: text.Replace(m.before), mutant: m},
			edit{at: m.to, order: -m.from, tie: -m.number, text: text.Replace(m.after), mutant: m, end: true})
		if m.comma > 0 {
			edits[m.file] = append(edits[m.file], edit{at: m.comma, skip: strings.Count(m.before, "=") + 1, text: ","})
		}
	}
	files, spans := map[string][]byte{}, map[string][]*span{}
	for file, list := range edits {
		src, err := os.ReadFile(file)
		if err != nil {
			return nil, nil, err
		}
		// At one place an inner mutant ends before an outer one, and any ends before another begins.
		slices.SortFunc(list, func(a, b edit) int {
			if a.at == b.at && a.end != b.end {
				return map[bool]int{true: -1, false: 1}[a.end]
			}
			return slices.Compare([]int{a.at, a.order, a.tie}, []int{b.at, b.order, b.tie})
		})
		var out []byte
		open, last := map[*mutant]*span{}, 0
		for _, e := range list {
			out = append(out, src[last:e.at]...)
			if e.mutant != nil && !e.end {
				open[e.mutant] = &span{mutant: e.mutant, from: len(out)}
			}
			out = append(out, e.text...)
			if e.end {
				open[e.mutant].to = len(out)
				spans[file] = append(spans[file], open[e.mutant])
			}
			last = e.at + e.skip
		}
		files[file] = append(out, src[last:]...)
		clause := regexp.MustCompile(`(?m)^package \w+$`).Find(src)
		files[filepath.Join(filepath.Dir(file), "zz_mutants.go")] = append(clause, helpers...)
	}
	return files, spans, nil
}
