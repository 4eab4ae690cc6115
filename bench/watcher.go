package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// ringSize is the number of writes whose response time a writer stores. A
// watcher that is further behind measures from the send time instead.
const ringSize = 1 << 14

// writer makes numbered writes, one after the other.
type writer struct {
	id      int
	path    string
	size    int
	pause   time.Duration // between the starts of two writes; 0 if there is none
	offset  time.Duration // of the first write, so that writers take turns
	clock   time.Time     // zero point of all times of a run
	tally   tally         // owned by run
	acked   atomic.Int64
	answers [ringSize]struct{ number, at atomic.Int64 }
}

func newWriter(id int, s *session, clock time.Time) *writer {
	w := &writer{id: id, path: s.path, size: s.Size, clock: clock}
	if s.Rate > 0 {
		w.pause = time.Second * time.Duration(s.Writers) / time.Duration(s.Rate)
		w.offset = time.Second * time.Duration(id) / time.Duration(s.Rate)
	}
	return w
}

// run writes until the end, or until it made limit writes if that is not 0. It
// retries a failed write under the same number, so a server that commits a
// write and still reports an error shows a duplicate.
func (w *writer) run(ctx context.Context, c client, end time.Time, limit int64) {
	for begin := time.Now(); ctx.Err() == nil; {
		number := w.acked.Load()
		time.Sleep(time.Until(begin.Add(w.offset + time.Duration(number)*w.pause)))
		if limit > 0 && number >= limit || limit == 0 && time.Now().After(end) {
			return
		}
		name := fmt.Sprintf("%s%d-%d", watchPrefix, w.id, number%perWriter)
		method, path := http.MethodPost, w.path
		if number >= perWriter {
			method, path = http.MethodPut, w.path+"/"+name
		}
		sent := time.Since(w.clock)
		mark := stamp{writer: w.id, number: number, sent: sent}
		body := stamped(name, data(int(number), w.size), mark.String())
		bytes, err := c.discard(ctx, method, path, "", writeHeader, body)
		if method == http.MethodPost && hasCode(err, http.StatusConflict) { // left by an earlier run
			bytes, err = c.discard(ctx, http.MethodPut, path+"/"+name, "", writeHeader, body)
		}
		done := time.Since(w.clock)
		w.tally.count(done-sent, bytes, err)
		if err != nil {
			if limit > 0 && w.tally.errors > limit {
				return // the error is permanent
			}
			continue
		}
		w.remember(number, done)
		w.acked.Store(number + 1)
	}
}

// remember stores when a write was answered. The slot's number is 0 while its
// time changes, so that a reader never mixes two writes.
func (w *writer) remember(number int64, at time.Duration) {
	slot := &w.answers[number%ringSize]
	slot.number.Store(0)
	slot.at.Store(int64(at))
	slot.number.Store(number + 1)
}

// answered is the response time of the write with that number, if known.
func (w *writer) answered(number int64) (at time.Duration, known bool) {
	slot := &w.answers[number%ringSize]
	before := slot.number.Load()
	at = time.Duration(slot.at.Load())
	return at, before == number+1 && slot.number.Load() == before
}

// stamp is the mark in a written object that watchers look for.
type stamp struct {
	writer int
	number int64
	sent   time.Duration
}

func (s stamp) String() string {
	return fmt.Sprintf("%d/%d/%d", s.writer, s.number, int64(s.sent))
}

var stampKey = []byte(`"stamp":"`)

// findStamp finds a stamp in an event without decoding it: decoding in a
// hundred watchers would need more CPU than the server. Events of other objects
// in the namespace have none.
func findStamp(event []byte) (stamp, bool) {
	at := bytes.Index(event, stampKey)
	if at < 0 {
		return stamp{}, false
	}
	rest := event[at+len(stampKey):]
	end := bytes.IndexByte(rest, '"')
	if end < 0 {
		return stamp{}, false
	}
	fields := strings.Split(string(rest[:end]), "/")
	if len(fields) != 3 {
		return stamp{}, false
	}
	writer, err1 := strconv.Atoi(fields[0])
	number, err2 := strconv.ParseInt(fields[1], 10, 64)
	sent, err3 := strconv.ParseInt(fields[2], 10, 64)
	if err1 != nil || err2 != nil || err3 != nil || writer < 0 || number < 0 {
		return stamp{}, false
	}
	return stamp{writer: writer, number: number, sent: time.Duration(sent)}, true
}

// watcher follows one watch. All but delivered, next and ended belong to follow
// until that has ended.
type watcher struct {
	writers    []*writer
	clock      time.Time
	next       []int64 // by writer: the next expected number; written atomically
	delivered  atomic.Int64
	ended      atomic.Bool
	tally      tally
	fromSend   histogram
	missed     int64
	duplicated int64
	last       time.Duration // arrival of the newest event
	cut        error         // why the watch ended early
}

// maxEvent is the longest event that can be read; an object of the largest
// size fits several times.
const maxEvent = 16 << 20

// follow reads events until the watch ends.
func (w *watcher) follow(ctx context.Context, body io.ReadCloser) {
	defer w.ended.Store(true)
	defer body.Close()
	lines := bufio.NewScanner(body)
	lines.Buffer(make([]byte, 32<<10), maxEvent)
	for lines.Scan() {
		event := lines.Bytes()
		w.tally.bytes += int64(len(event)) + 1
		if bytes.HasPrefix(event, []byte(`{"type":"ERROR"`)) {
			w.cut = fmt.Errorf("watch ended with %.300s", event)
			return
		}
		if mark, ok := findStamp(event); ok && mark.writer < len(w.writers) {
			w.arrived(mark, time.Since(w.clock))
		}
	}
	if ctx.Err() != nil {
		return // the run ended it
	}
	w.cut = lines.Err()
	if w.cut == nil {
		w.cut = errors.New("watch was closed by the server")
	}
}

// arrived counts one event.
func (w *watcher) arrived(mark stamp, at time.Duration) {
	expected := &w.next[mark.writer]
	if mark.number < *expected {
		w.duplicated++
		return
	}
	w.missed += mark.number - *expected
	atomic.StoreInt64(expected, mark.number+1)
	w.last = at
	w.fromSend.add(at - mark.sent)
	// An event may arrive before the response to its write: then the delay is
	// 0.
	since := time.Duration(0)
	if answered, known := w.writers[mark.writer].answered(mark.number); known {
		since = at - answered
	} else if w.writers[mark.writer].acked.Load() > mark.number {
		since = at - mark.sent
	}
	w.tally.count(since, 0, nil)
	w.delivered.Add(1)
}

// complete reports whether the watcher has seen every write that was answered.
func (w *watcher) complete() bool {
	for i, writer := range w.writers {
		if atomic.LoadInt64(&w.next[i]) < writer.acked.Load() {
			return false
		}
	}
	return true
}
