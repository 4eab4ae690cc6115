package docs_test

import "testing"

// TestMarks: a page cannot leave a block out without a known reason.
func TestMarks(t *testing.T) {
	const run, text = "```sh\nexeunt version\n```\n", "Some text.\n"
	for name, c := range map[string]struct {
		page string
		bad  bool
		runs int
	}{
		"run":                      {page: run, runs: 1},
		"a reason":                 {page: "<!-- not run: starts a server -->\n" + run},
		"an unknown reason":        {page: "<!-- not run: too slow -->\n" + run, bad: true},
		"a test":                   {page: "<!-- not run: TestDocs runs it -->\n" + run},
		"a mark without a block":   {page: "<!-- not run: starts a server -->\n" + text + run, bad: true},
		"no language":              {page: "```\nexeunt version\n```\n", bad: true},
		"an indented block":        {page: text + "\n    exeunt version\n", bad: true},
		"in a list":                {page: "- text\n\n  <!-- not run: starts a server -->\n  ```sh\n  exeunt serve\n  ```\n\n  ```sh\n  exeunt version\n  ```\n", runs: 1},
		"no command":               {page: "```text\nexeunt version\n```\n"},
		"console":                  {page: "```console\n$ cat <<END\n$ text\nEND\nout\n$ exeunt version\n```\n", runs: 2},
		"a mark holds for one one": {page: "<!-- not run: starts a server -->\n" + run + "\n" + run, runs: 1},
	} {
		blocks, err := parse(c.page)
		if got := len(newScript(blocks).commands); (err != nil) != c.bad || got != c.runs {
			t.Errorf("%s: %d commands, %v", name, got, err)
		}
	}
}

// TestDiffers: numbers, times and ids may differ; words, and the order of lines, may not.
func TestDiffers(t *testing.T) {
	for _, c := range []struct {
		want []string
		got  string
		yes  bool
	}{
		{want: []string{"2 objects, 5s ago"}, got: "first\n17 objects, 1h2m3s ago\n"},
		{want: []string{"2 objects"}, got: "2 things", yes: true},
		{want: []string{"a", "b"}, got: "b\na\n", yes: true},
		{want: []string{"uid 326538d0-…, …"}, got: "uid 0f8c1f7c-5b1e-4c55-9d0e-8a2f6f1b7c11, and more"},
		{want: []string{"NAME   AGE"}, got: "NAME       AGE"},
		{want: []string{"…", "end"}, got: "x\nend"},
		{want: []string{"at 2026-11-16 09:06:56"}, got: "at 2027-01-01T00:00:00Z"},
		{want: []string{"at 2026-11-16 09:06:56"}, got: "at noon", yes: true},
		{want: []string{"bytes: 0 queued"}, got: "bytes: 2 queued, next in 40s"},
		{want: []string{"bytes: 2 queued, next in 40s"}, got: "bytes: 0 queued"},
		{want: []string{"bytes: 0 queued"}, got: "bytes: 2 queued, 1 failing", yes: true},
	} {
		if line, yes := differs(c.want, c.got); yes != c.yes {
			t.Errorf("%q in %q: differs %v at %q", c.want, c.got, yes, line)
		}
	}
}
