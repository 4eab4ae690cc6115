package builtin

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// cronField is one of the five fields of a schedule.
type cronField struct {
	name     string
	min, max int
	names    []string // names[i] means min+i
}

var cronFields = []cronField{
	{name: "minute", max: 59},
	{name: "hour", max: 23},
	{name: "day of month", min: 1, max: 31},
	{name: "month", min: 1, max: 12, names: []string{
		"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}},
	{name: "day of week", max: 6, names: []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}},
}

var cronShortcuts = []string{"@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"}

// checkSchedule returns what is wrong with a CronJob's schedule. Valid are five cron
// fields, a shortcut such as @daily, or "@every" and a duration.
func checkSchedule(schedule string) error {
	if every, ok := strings.CutPrefix(schedule, "@every "); ok {
		if _, err := time.ParseDuration(every); err != nil {
			return fmt.Errorf("duration of @every: %w", err)
		}
		return nil
	}
	if strings.HasPrefix(schedule, "@") {
		if !slices.Contains(cronShortcuts, schedule) {
			return fmt.Errorf("unknown shortcut %q: must be @every and a duration, or one of %s", schedule, strings.Join(cronShortcuts, ", "))
		}
		return nil
	}
	fields := strings.Fields(schedule)
	if len(fields) != len(cronFields) {
		return fmt.Errorf("expected exactly 5 fields, found %d: %s", len(fields), fields)
	}
	for i, f := range cronFields {
		for _, part := range strings.Split(fields[i], ",") {
			if err := f.check(part); err != nil {
				return fmt.Errorf("%s %q: %w", f.name, fields[i], err)
			}
		}
	}
	return nil
}

// check validates one part of a field: a value, a range or "*", with an optional step.
func (f cronField) check(part string) error {
	span, step, stepped := strings.Cut(part, "/")
	if stepped {
		if n, err := strconv.Atoi(step); err != nil || n < 1 {
			return fmt.Errorf("step %q must be a positive number", step)
		}
	}
	if span == "*" || span == "?" {
		return nil
	}
	first, last, ranged := strings.Cut(span, "-")
	from, err := f.value(first)
	if err != nil || !ranged {
		return err
	}
	to, err := f.value(last)
	if err != nil {
		return err
	}
	if from > to {
		return fmt.Errorf("beginning of range %d is beyond its end %d", from, to)
	}
	return nil
}

func (f cronField) value(s string) (int, error) {
	if i := slices.Index(f.names, strings.ToLower(s)); i >= 0 {
		return f.min + i, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0, fmt.Errorf("%q is not a number", s)
	}
	if n < f.min || n > f.max {
		return 0, fmt.Errorf("%d is not between %d and %d", n, f.min, f.max)
	}
	return n, nil
}
