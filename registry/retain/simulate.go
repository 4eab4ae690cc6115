package retain

import (
	"context"
	"fmt"
	"time"

	"github.com/exeunt/exeunt/sqldb"
)

// maxDays is how many days of pulls and pushes are kept.
const maxDays = 31

// Failed are pulls of a day that would have failed.
type Failed struct {
	Reference string `json:"reference"` // :TAG or @DIGEST
	Day       string `json:"day"`       // UTC
	Pulls     int64  `json:"pulls"`
	Policy    string `json:"policy"` // that had taken the tag
}

// change is what happened to a tag on a day: its state before and after. A time of zero: there was no such tag.
type change struct {
	day     int64 // since 1970, UTC
	tag     string
	was, is version
}

type version struct {
	digest string
	pushed time.Time
}

// pull counts the pulls of a manifest on a day, by a tag or, if that is empty, by its digest.
type pull struct {
	day         int64
	tag, digest string
	number      int64
	last        time.Time
}

// past is what is known of the last days of a repository. Changes and pulls are in the order of their days.
type past struct {
	tags    []Tag // as they are now
	changes []change
	pulls   []pull
	lists   map[string][]string // the digests of the lists that have a manifest
}

// replayed is a repository as it would have been.
type replayed struct {
	now      map[string]Tag // the tags as they are
	tags     map[string]*Tag
	takenBy  map[string]string          // the policy, for a tag that would be gone
	byDigest map[string]map[string]bool // the names of tags
}

// replay returns the pulls that would have failed, had the policies run at the begin of each day from the first.
//
// A tag that would have been taken is back when it is pushed; it counts as there for all of that day. A pull by digest,
// also of a manifest of a list, fails when the tags that have it would all be gone. What is in use or immutable now
// counts as such before, and what was pulled before the first day as pulled on it.
func replay(first, last int64, policies []Policy, p past) (failed []Failed) {
	w := p.begin(first)
	changes, pulls := p.changes, p.pulls
	for today := first; today <= last; today++ {
		var there []Tag
		for name, t := range w.tags {
			if w.takenBy[name] == "" {
				there = append(there, *t)
			}
		}
		for _, t := range Decide(dayTime(today), policies, there).Taken {
			w.takenBy[t.Tag] = t.Policy
		}
		for ; len(changes) > 0 && changes[0].day <= today; changes = changes[1:] {
			if c := changes[0]; c.day == today {
				w.put(c.tag, c.is)
			}
		}
		for ; len(pulls) > 0 && pulls[0].day <= today; pulls = pulls[1:] {
			d := pulls[0]
			if policy := w.missing(d, p.lists); policy != "" {
				reference := ":" + d.tag
				if d.tag == "" {
					reference = "@" + d.digest
				}
				failed = append(failed, Failed{Reference: reference, Day: dayTime(today).Format(time.DateOnly), Pulls: d.number, Policy: policy})
				continue
			}
			for name := range w.byDigest[d.digest] { // a pull counts for all tags of a manifest
				if t := w.tags[name]; w.takenBy[name] == "" && d.last.After(t.Pulled) {
					t.Pulled = d.last
				}
			}
		}
	}
	return failed
}

func dayTime(day int64) time.Time { return time.Unix(day*24*60*60, 0).UTC() }

func dayOf(t time.Time) int64 { return t.Unix() / (24 * 60 * 60) }

// begin returns the repository as it was before the first day.
func (p *past) begin(first int64) *replayed {
	w := &replayed{now: map[string]Tag{}, tags: map[string]*Tag{}, takenBy: map[string]string{}, byDigest: map[string]map[string]bool{}}
	for _, t := range p.tags {
		w.now[t.Name] = t
	}
	known := map[string]bool{}
	for _, c := range p.changes {
		if c.day >= first && !known[c.tag] {
			known[c.tag] = true
			w.put(c.tag, c.was)
		}
	}
	for _, t := range p.tags {
		if !known[t.Name] { // if it was pushed later than that, it is not in the record
			w.put(t.Name, version{t.Digest, t.Pushed})
		}
		if there := w.tags[t.Name]; there != nil && !t.Pulled.IsZero() {
			there.Pulled = t.Pulled
			if begin := dayTime(first); begin.Before(t.Pulled) {
				there.Pulled = begin
			}
		}
	}
	return w
}

// put brings a tag into a state.
func (w *replayed) put(name string, v version) {
	t := w.tags[name]
	if t != nil {
		delete(w.byDigest[t.Digest], name)
	}
	if v.pushed.IsZero() {
		delete(w.tags, name)
		delete(w.takenBy, name)
		return
	}
	if t == nil || w.takenBy[name] != "" {
		t = &Tag{Name: name, InUse: w.now[name].InUse, Immutable: w.now[name].Immutable}
	}
	delete(w.takenBy, name)
	t.Digest, t.Pushed = v.digest, v.pushed
	w.tags[name] = t
	if w.byDigest[v.digest] == nil {
		w.byDigest[v.digest] = map[string]bool{}
	}
	w.byDigest[v.digest][name] = true
}

// missing returns the policy because of which there is not what is pulled, or "".
func (w *replayed) missing(d pull, lists map[string][]string) (policy string) {
	if d.tag != "" {
		return w.takenBy[d.tag]
	}
	for _, digest := range append([]string{d.digest}, lists[d.digest]...) {
		for name := range w.byDigest[digest] {
			if w.takenBy[name] == "" {
				return ""
			}
			policy = max(policy, w.takenBy[name])
		}
	}
	return policy
}

// millis is a time in a column. 0 is the time zero.
type millis time.Time

// Scan is part of sql.Scanner.
func (m *millis) Scan(value any) error {
	n, ok := value.(int64)
	if !ok {
		return fmt.Errorf("%T is not a time", value)
	}
	if n != 0 {
		*m = millis(time.UnixMilli(n))
	}
	return nil
}

// past reads what is known of a repository since a day.
func (r *Retention) past(ctx context.Context, s sqldb.Sender, repo repository, tags []Tag, first int64) (p past, err error) {
	p = past{tags: tags, lists: map[string][]string{}}
	var b sqldb.Batch
	b.Query(sqldb.Into(&p.changes, func(c *change) []any {
		return []any{&c.day, &c.tag, &c.was.digest, (*millis)(&c.was.pushed), &c.is.digest, (*millis)(&c.is.pushed)}
	}), listChanges, repo.id, first)
	b.Query(sqldb.Into(&p.pulls, func(d *pull) []any { return []any{&d.day, &d.tag, &d.digest, &d.number, (*millis)(&d.last)} }), listPulls, repo.id, first)
	b.Query(func(row sqldb.Row) error {
		var digest, list string
		err := row.Scan(&digest, &list)
		p.lists[digest] = append(p.lists[digest], list)
		return err
	}, listLists, repo.id)
	if err := s.Send(ctx, &b); err != nil {
		return p, fmt.Errorf("read the last days: %w", err)
	}
	return p, nil
}

// forget deletes what is too old for a simulation.
func (r *Retention) forget(ctx context.Context) error {
	oldest := dayOf(r.opts.Now()) - maxDays
	for _, statement := range []string{forgetPulls, forgetChanges} {
		for n := forgetStep; n == forgetStep && ctx.Err() == nil; {
			if err := r.db.Transact(ctx, func(tx *sqldb.Tx) error {
				gone, err := sqldb.Column[int64](ctx, tx, statement, oldest, forgetStep)
				n = len(gone)
				return err
			}); err != nil {
				return fmt.Errorf("forget old pulls: %w", err)
			}
		}
	}
	return nil
}
