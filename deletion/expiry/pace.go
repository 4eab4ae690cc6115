package expiry

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/exeunt/exeunt/lifecycle"
)

// window is a time of the day (UTC), on some days, in which a policy takes objects.
type window struct {
	Days []string `json:"days"` // "Mon"; empty: all
	From string   `json:"from"`
	To   string   `json:"to"` // not after From: on the next day

	from, length time.Duration
}

// rate is how many objects a policy takes in a slot of time.
type rate struct {
	Objects int64  `json:"objects"`
	Per     string `json:"per"`
}

const wholeDay = 24 * time.Hour

// slots are the values of rate.per. Each is a part of a day, so that a slot is in one day.
var slots = map[string]time.Duration{"": wholeDay, "Day": wholeDay, "Hour": time.Hour, "Minute": time.Minute}

func (p *Policy) parsePace(s *spec) error {
	for _, w := range s.Windows {
		var times [2]time.Duration
		for i, text := range []string{w.From, w.To} {
			at, err := time.Parse("15:04", text)
			if text != "" && err != nil {
				return fmt.Errorf(`windows: %q is not a time of the day such as "22:00"`, text)
			}
			times[i] = time.Duration(at.Hour())*time.Hour + time.Duration(at.Minute())*time.Minute
		}
		if w.from, w.length = times[0], times[1]-times[0]; w.length <= 0 {
			w.length += wholeDay
		}
		p.Windows = append(p.Windows, w)
	}
	if p.slot = slots[s.Rate.Per]; p.slot == 0 || s.Rate.Objects < 0 {
		return errors.New("rate: a number of objects per Minute, Hour or Day")
	}
	p.Rate = s.Rate.Objects
	return nil
}

// opens returns the first moment from a time on at which the policy takes objects.
func (p *Policy) opens(at time.Time) time.Time {
	if len(p.Windows) == 0 {
		return at
	}
	first := lifecycle.Forever
	for _, w := range p.Windows {
		// A window of the day before may last until now; one of each week begins within seven days.
		for day := at.UTC().Truncate(wholeDay).Add(-wholeDay); day.Before(first); day = day.Add(wholeDay) {
			begin := day.Add(w.from)
			if !begin.Add(w.length).After(at) || len(w.Days) > 0 && !slices.Contains(w.Days, day.Weekday().String()[:3]) {
				continue
			}
			if begin = later(begin, at); begin.Before(first) {
				first = begin
			}
			break
		}
	}
	return first
}

// nextSlot returns when the policy may take objects again, some slots after that of a time.
func (p *Policy) nextSlot(at time.Time, slots int64) time.Time {
	return p.opens(at.UTC().Truncate(p.slot).Add(time.Duration(slots) * p.slot))
}

// slotOf numbers the slots of time of a policy.
func (p *Policy) slotOf(at time.Time) int64 { return at.Unix() / int64(p.slot/time.Second) }

// inSlot is how many objects the policy may take in a slot.
func (p *Policy) inSlot() int64 {
	if p.Rate == 0 {
		return lifecycle.Forever.Unix() // no limit
	}
	return p.Rate
}

// inADay is how many of a number of objects the policy may take in a day by its rate.
func (p *Policy) inADay(objects int64) int64 {
	return min(objects, p.inSlot()*int64(wholeDay/p.slot))
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
