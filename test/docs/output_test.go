package docs_test

import (
	"regexp"
	"strings"
)

// What differs from run to run: times, sizes, ids, counts.
var (
	changing = regexp.MustCompile(`\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?Z?` + // a time
		`|\b\d{8}T\d{6}Z-\w{8}\b` + // a backup
		`|\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b` + // a uid
		`|\bexb_[a-z2-7]{16}|\b[a-z2-7]{16}\b` + // a token and its id
		`|\bkey-[0-9a-f]{8}\b|\b[0-9a-f]{40,}\b` +
		`|\b\d+(\.\d+)?(ms|[KMGT]i?B?|[smhdB])?(\d+(ms|[smhd]))*\b`) // a duration, a size, a number
	// A queue says when its next review is due, unless it is empty or one is due now.
	nextDue = regexp.MustCompile(`, next in \S+$`)
	spaces  = regexp.MustCompile(`\s+`)
	cut     = regexp.MustCompile(`\b[0-9a-f]{4,}-?…`) // the beginning of an id
	gap     = regexp.MustCompile(`…|\.\.\.|\x00`)
)

// differs returns the first line of the page that the output does not have, in order. In
// a line of the page … stands for anything, and numbers, times and ids for others of their kind.
// The output may have more lines.
func differs(want []string, got string) (line string, yes bool) {
	lines := strings.Split(got, "\n")
	for i, line := range lines {
		lines[i] = nextDue.ReplaceAllString(line, "")
	}
	for _, line := range want {
		if strings.TrimSpace(gap.ReplaceAllString(line, "")) == "" {
			continue
		}
		pattern := expression(nextDue.ReplaceAllString(line, ""))
		for len(lines) > 0 && !pattern.MatchString(lines[0]) {
			lines = lines[1:]
		}
		if len(lines) == 0 {
			return line, true
		}
		lines = lines[1:]
	}
	return "", false
}

func expression(line string) *regexp.Regexp {
	line = cut.ReplaceAllString(line, "…")
	line = changing.ReplaceAllString(strings.TrimSpace(line), "\x00")
	var b strings.Builder
	b.WriteString(`^\s*`)
	at := 0
	for _, found := range gap.FindAllStringIndex(line, -1) {
		b.WriteString(literally(line[at:found[0]]))
		if line[found[0]] == 0 {
			b.WriteString("(" + changing.String() + ")")
		} else {
			b.WriteString(".*")
		}
		at = found[1]
	}
	b.WriteString(literally(line[at:]) + `\s*$`)
	return regexp.MustCompile(b.String())
}

// literally matches a text with any width of its spaces: columns are as wide as their content.
func literally(text string) string {
	return spaces.ReplaceAllString(regexp.QuoteMeta(text), `\s+`)
}
