// Command mutants puts deliberate bugs into packages, and says which of them the packages' tests do
// not see. It is no part of the product.
//
//	mutants [-seed N] [-n N | -only N,...] [-pkg FOLDER,...] [-tests FOLDER,...] [-run REGEXP]
//
// All bugs of a package are in one test program, in which EXEUNT_MUTANT switches one on by its number:
// so each package is compiled once. Each test runs alone first, to learn which bugs it reaches, and only
// those tests look for a bug. A bug that no test of its own package sees may be seen by the tests of
// another (-tests), or may be none: a person judges each that is listed.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
)

// protecting are the folders whose code decides about rights, data that could be lost, and the way back.
var protecting = []string{
	"access", "access/rbac", "access/registrytoken", "access/serviceaccount", "access/signing", "admission", "admission/quota", "api", "backup", "broker/reconcile",
	"console", "deletion/archive", "deletion/expiry", "deletion/finalizer", "deletion/preview", "gc", "lifecycle", "registry/collect", "registry/repository",
	"registry/retain", "store", "store/history", "store/seal",
}

// runner runs commands.
type runner struct{ tests string }

func main() {
	seed := flag.Uint64("seed", 1, "another seed draws other bugs")
	n := flag.Int("n", 40, "how many bugs, over all packages; 0 is all")
	only := flag.String("only", "", "numbers of bugs of one package, with commas: only these")
	folders := flag.String("pkg", strings.Join(protecting, ","), "folders of the packages, with commas")
	tests := flag.String("tests", "", "folders of the packages whose tests look, with commas (default: that of the bug)")
	run := flag.String("run", "^(Test|Fuzz|Example)", "the tests that look")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	r := &runner{tests: *run}
	if err := r.all(ctx, rand.New(rand.NewPCG(*seed, 0)), *n, *only, strings.Split(*folders, ","), *tests); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func (r *runner) all(ctx context.Context, rng *rand.Rand, n int, only string, folders []string, tests string) error {
	first := rng.IntN(len(folders)) // the bugs are spread evenly: a large package does not get most
	var living []*mutant
	total := map[fate]int{}
	fmt.Printf("| package | bugs | seen | not seen | never reached |\n|---|---|---|---|---|\n")
	for i, folder := range folders {
		all, err := find(folder)
		if err != nil {
			return err
		}
		share := n / len(folders)
		if (i+first)%len(folders) < n%len(folders) {
			share++
		}
		if n > 0 && share == 0 {
			continue
		}
		sample, err := r.judge(ctx, all, func(all []*mutant) []*mutant { return draw(rng, all, share, only) }, strings.Split(cmp.Or(tests, folder), ","))
		if err != nil {
			return fmt.Errorf("%s: %w", folder, err)
		}
		if files, err := run(ctx, ".", nil, "git", "ls-files", "--others", "--exclude-standard", folder); err == nil && len(files) > 0 {
			fmt.Fprintf(os.Stderr, "mutants: not under version control, perhaps written by a bug: remove before you commit\n%s", files)
		}
		count := map[fate]int{}
		for _, m := range sample {
			count[m.fate]++
			total[m.fate]++
			if m.fate != seen {
				living = append(living, m)
			}
		}
		fmt.Printf("| %s | %d | %d | %d | %d |\n", folder, len(sample), count[seen], count[notSeen], count[unreached])
	}
	fmt.Printf("| all | %d | %d | %d | %d |\n\n", total[seen]+total[notSeen]+total[unreached], total[seen], total[notSeen], total[unreached])
	for _, m := range living {
		fmt.Printf("%s: %s\n", m.fate, m)
	}
	return nil
}

// draw takes a share of the mutants of a package, or those whose numbers are given; a share of 0 is all.
func draw(rng *rand.Rand, sample []*mutant, share int, only string) []*mutant {
	rng.Shuffle(len(sample), func(a, b int) { sample[a], sample[b] = sample[b], sample[a] })
	switch {
	case only != "":
		numbers := strings.Split(only, ",")
		sample = slices.DeleteFunc(sample, func(m *mutant) bool { return !slices.Contains(numbers, strconv.Itoa(m.number)) })
	case share > 0:
		sample = sample[:min(share, len(sample))]
	}
	slices.SortFunc(sample, func(a, b *mutant) int { return a.number - b.number })
	return sample
}
