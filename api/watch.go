package api

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/watch"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/exeunt/exeunt/api/selector"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

const (
	// bookmarkEvery is how often a watcher that asked for bookmarks gets one, if the
	// revision has advanced.
	bookmarkEvery = 10 * time.Second
	// lastBookmark is how long before its timeout such a watch gets one more, as in
	// Kubernetes.
	lastBookmark = 2 * time.Second
	// minWatchTime is how long a watch without timeoutSeconds lasts. The limit is
	// random, up to twice that, so that clients do not reconnect all at once.
	minWatchTime = 30 * time.Minute
)

// sink receives the events of a watch: as decoded objects for the library, or as
// JSON frames for the response. Bodies are valid during the call only.
type sink interface {
	// added receives an object of the initial state.
	added(o object.Object) error
	// changed receives an event; o is the state to show for it.
	changed(t watch.EventType, e *store.Event, o object.Object) error
	// bookmark marks that everything up to the revision was sent; initial marks
	// the end of the initial state.
	bookmark(revision int64, initial bool) error
	// flush is called when no more events are ready.
	flush() error
}

// watchPlan is the meaning of the options of a watch.
type watchPlan struct {
	from        int64 // send the events after this revision
	state       bool  // begin with the present state as ADDED events
	marked      bool  // end that state with an annotated bookmark
	bookmarks   bool
	minRevision int64 // minimum revision of the state
}

// planWatch reads the options as Kubernetes does: with a version, events after it;
// without, or with "0", the state first, unless sendInitialEvents says otherwise.
func (r *resource) planWatch(options *metainternal.ListOptions) (watchPlan, error) {
	plan := watchPlan{bookmarks: options.AllowWatchBookmarks}
	if r.api.closing.Err() != nil {
		return plan, unavailable("the server is shutting down; please try again")
	}
	version, err := parseVersion(options.ResourceVersion)
	if err != nil {
		return plan, r.statusError(err, object.Key{})
	}
	initial := options.SendInitialEvents
	switch {
	case initial != nil && *initial:
		plan.state, plan.marked, plan.minRevision = true, options.AllowWatchBookmarks, version
	case initial != nil:
		plan.from = version
		if version == 0 {
			plan.from = r.api.Store.Revision()
		}
	default:
		plan.from, plan.state = version, version == 0
	}
	return plan, nil
}

// openState opens the state that a watch begins with, or returns nil. It runs
// before the client gets the response header: changes after that are sent as
// events, not as part of the state.
func (r *resource) openState(ctx context.Context, options *metainternal.ListOptions, plan watchPlan) (*store.Listing, error) {
	if !plan.state {
		return nil, nil
	}
	request, err := r.listRequest(ctx, &metainternal.ListOptions{LabelSelector: options.LabelSelector, FieldSelector: options.FieldSelector})
	if err != nil {
		return nil, err
	}
	listing, err := r.api.Store.List(ctx, request)
	if err != nil {
		return nil, r.statusError(err, object.Key{})
	}
	if revision := listing.Revision(); plan.minRevision > revision {
		return nil, versionTooLarge(tooLargeMessage(plan.minRevision, revision))
	}
	return listing, nil
}

// runWatch sends the state, if there is one, and then the events, until the context
// ends. It returns nil then. Any other end is an error for the client.
func (r *resource) runWatch(ctx context.Context, options *metainternal.ListOptions, plan watchPlan, state *store.Listing, out sink) error {
	match, name := r.matcher(options)
	request := store.WatchRequest{Kind: r.v.Kind.Storage, Name: name, From: plan.from, Slow: match.Slow()}
	if r.v.Kind.Namespaced {
		request.Namespace = genericrequest.NamespaceValue(ctx)
	}
	if state != nil {
		request.From = state.Revision()
		if err := r.sendState(plan, state, out); err != nil {
			return unlessEnded(ctx, err)
		}
	}
	if err := out.flush(); err != nil {
		return unlessEnded(ctx, err)
	}
	watcher, err := r.api.Store.Watch(ctx, request)
	if err != nil {
		return unlessEnded(ctx, r.watchError(ctx, err))
	}
	defer watcher.Close()
	return unlessEnded(ctx, r.follow(ctx, watcher, match, plan, request.From, out))
}

// watchError is the error of a watch that has delivered everything up to some version. While the
// database does not answer that is 429: client-go then waits and continues from its last
// version. After any other error it lists everything again, and so would all informers of a
// replica at once.
func (r *resource) watchError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err // the watch is over, by its timeout or by the client
	}
	if store.Unavailable(err) || errors.Is(err, context.DeadlineExceeded) {
		r.api.Logger.Warn("watch ended: the database does not answer", "resource", r.v.Resource().String(), "error", err)
		return apierrors.NewTooManyRequests("the server's database does not answer; continue this watch from the last version received", retryAfter)
	}
	return r.statusError(err, object.Key{})
}

// unlessEnded drops errors that only mean that the watch is over.
func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil || errors.Is(err, errSinkClosed) {
		return nil
	}
	return err
}

var errSinkClosed = errors.New("the client has gone, or does not read")

func (r *resource) sendState(plan watchPlan, state *store.Listing, out sink) error {
	for state.Next() {
		if err := out.added(state.Object()); err != nil {
			return err
		}
	}
	if err := state.Err(); err != nil {
		return r.statusError(err, object.Key{})
	}
	if plan.marked {
		return out.bookmark(state.Revision(), true)
	}
	return nil
}

func (r *resource) follow(ctx context.Context, watcher *store.Watcher, match selector.Matcher, plan watchPlan, reported int64, out sink) error {
	due := time.Now().Add(r.api.bookmarkEvery)
	early, cancel := beforeEnd(ctx, plan)
	defer cancel()
	for {
		events, upTo, err := watcher.Next(early)
		if err != nil && early.Err() != nil && ctx.Err() == nil {
			// The watch ends soon: the last bookmark is due. An ended context makes Next
			// collect what is there, without waiting.
			if events, upTo, err = watcher.Next(early); errors.Is(err, context.DeadlineExceeded) {
				err = nil
			}
			early, due = ctx, time.Time{}
		}
		if err != nil {
			return r.watchError(ctx, err)
		}
		for _, e := range events {
			if err := send(e, match, out); err != nil {
				return err
			}
			reported = e.Object.Revision
		}
		if plan.bookmarks && upTo > reported && time.Now().After(due) {
			if err := out.bookmark(upTo, false); err != nil {
				return err
			}
			reported, due = upTo, time.Now().Add(r.api.bookmarkEvery)
		}
		if err := out.flush(); err != nil {
			return err
		}
	}
}

// beforeEnd returns a context that ends shortly before a watch with bookmarks does. The
// client continues at the last bookmark, so it should be recent.
func beforeEnd(ctx context.Context, plan watchPlan) (context.Context, context.CancelFunc) {
	end, limited := ctx.Deadline()
	if !plan.bookmarks || !limited || time.Until(end) <= lastBookmark {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, end.Add(-lastBookmark))
}

// send translates a change for the watcher's selectors: an object that begins to
// match is ADDED, and one that no longer matches is DELETED.
func send(e *store.Event, match selector.Matcher, out sink) error {
	now, err := match.Match(e.Object.Key, e.Object.Body)
	if err != nil {
		return err
	}
	switch e.Type {
	case store.Created:
		if now {
			return out.changed(watch.Added, e, e.Object)
		}
	case store.Removed:
		if now {
			return out.changed(watch.Deleted, e, e.Object)
		}
	case store.Updated:
		before := match.All()
		if !before && e.Previous != nil {
			if before, err = match.Match(e.Object.Key, e.Previous); err != nil {
				return err
			}
		}
		switch {
		case now && before:
			return out.changed(watch.Modified, e, e.Object)
		case now:
			return out.changed(watch.Added, e, e.Object)
		case before:
			left := e.Object
			left.Body = e.Previous
			return out.changed(watch.Deleted, e, left)
		}
	}
	return nil
}

// watchTimeout returns how long the watch may last.
func watchTimeout(options *metainternal.ListOptions) time.Duration {
	if options.TimeoutSeconds != nil && *options.TimeoutSeconds > 0 {
		return time.Duration(min(*options.TimeoutSeconds, maxSeconds)) * time.Second
	}
	return minWatchTime + rand.N(minWatchTime)
}

// maxSeconds is the largest number of seconds that a time.Duration can hold.
const maxSeconds = math.MaxInt64 / int64(time.Second)

// boundTimeout lowers timeoutSeconds to maxSeconds. The library does not check for
// overflow, and a watch whose timeout overflows would end immediately.
func boundTimeout(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		query := req.URL.Query()
		if n, err := strconv.ParseInt(query.Get("timeoutSeconds"), 10, 64); err == nil && n > maxSeconds {
			query.Set("timeoutSeconds", strconv.FormatInt(maxSeconds, 10))
			req = req.Clone(req.Context())
			req.URL.RawQuery = query.Encode()
		}
		next(w, req)
	}
}

// watchEndGrace is how long a pending write may take after its watch has ended. A
// client that reads needs milliseconds.
const watchEndGrace = 2 * time.Second

// watchEnd interrupts a pending write of a watch that has ended, by its timeout or
// because the server stops. The writing goroutine is blocked while its client does
// not read.
type watchEnd struct {
	mu         sync.Mutex
	controller *http.ResponseController // of the response; nil if the handler has returned; guarded by mu
	set        bool                     // a deadline is set; guarded by mu
}

type watchEndKey struct{}

// withWatchEnd adds a watchEnd for the response to ctx. The handler calls done when
// it returns.
func withWatchEnd(ctx context.Context, w http.ResponseWriter) (_ context.Context, done func()) {
	end := &watchEnd{controller: http.NewResponseController(w)}
	return context.WithValue(ctx, watchEndKey{}, end), end.done
}

// setDeadlineAfter sets a write deadline on the response when ctx ends. ctx descends from the
// context of withWatchEnd. stop cancels this.
func setDeadlineAfter(ctx context.Context) (stop func() bool) {
	end, ok := ctx.Value(watchEndKey{}).(*watchEnd)
	if !ok {
		return func() bool { return false }
	}
	return context.AfterFunc(ctx, end.cut)
}

func (e *watchEnd) cut() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.controller != nil {
		// Writers without deadlines return an error; the server's have them.
		e.set = e.controller.SetWriteDeadline(time.Now().Add(watchEndGrace)) == nil
	}
}

// done removes the deadline: an HTTP/1.1 connection may serve another request.
func (e *watchEnd) done() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.set {
		_ = e.controller.SetWriteDeadline(time.Time{})
	}
	e.controller = nil
}
