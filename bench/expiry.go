package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

const (
	// expiryMargin is the time between the last of the objects made, the writes before, and the first expiry.
	expiryMargin = 500 * time.Millisecond
	// expiryPatience is how long RunExpiry waits after the last time: a controller manager with its default rate limit deletes
	// 20 objects a second.
	expiryPatience = 10 * time.Minute
	// makers is the least number of clients that create the objects: concurrent writes share commits.
	makers = 32
	// expiryRate is how many writes a second other clients make, if the configuration does not say.
	expiryRate = 50
)

// RunExpiry makes ConfigMaps that expire by lifecycle.exeunt.dev/expires-at, evenly over Duration, and measures how much later a watch
// shows that each is gone; and the writes of other clients, for as long before that and meanwhile. It is not a part of "all".
func RunExpiry(ctx context.Context, config Config) (Result, error) {
	return runExpiry(ctx, config, false)
}

// RunExpiryOfJobs is RunExpiry with finished Jobs that have ttlSecondsAfterFinished, on any server. Their times are whole seconds. They are
// deleted in the foreground; so there are two measures: until a watch shows the delete, and until the Job is gone.
func RunExpiryOfJobs(ctx context.Context, config Config) (Result, error) {
	return runExpiry(ctx, config, true)
}

// expiring is a run of objects that expire.
type expiring struct {
	*session
	jobs  bool
	begin time.Time // when the Jobs finished
	first time.Time // when the first one expires

	asked, gone tally        // owned by follow, until it has returned
	seen        map[int]bool // those whose delete was shown
}

func runExpiry(ctx context.Context, config Config, jobs bool) (Result, error) {
	if config.Rate == 0 {
		config.Rate = expiryRate
	}
	others, err := open(ctx, config)
	if err != nil {
		return Result{}, err
	}
	defer others.pool.close()
	own := *others
	own.path = collectionPath(own.expiryNamespace())
	e := &expiring{session: &own, jobs: jobs, begin: time.Now().Truncate(time.Second), seen: map[int]bool{}}
	own.Clients = max(own.Clients, makers)
	lead := time.Duration(own.Objects) * time.Millisecond // 1,000 a second, with one write each
	if jobs {
		own.path = strings.Replace(strings.Replace(own.path, "/api/v1/", "/apis/batch/v1/", 1), "/configmaps", "/jobs", 1)
		lead *= 4
	}
	lead = max(lead, 2*own.Duration, time.Second) // for few objects on a busy machine, and connections
	if err := ensureNamespace(ctx, own.pool.client(0), own.expiryNamespace(), ""); err != nil {
		return Result{}, err
	}
	before := time.Now().Add(lead)
	e.first = before.Add(own.Duration + 2*expiryMargin)
	if t := own.onEach(ctx, func(c client, n int) (int64, error) { return e.create(ctx, c, n) }); t.errors > 0 {
		return Result{}, fmt.Errorf("make objects: %d errors, the first: %w", t.errors, t.firstErr)
	}
	if time.Now().After(before) {
		return Result{}, fmt.Errorf("the server makes fewer than %d objects in %s", own.Objects, lead)
	}
	return e.measure(ctx, others, before)
}

// expiryNamespace is apart, as cascadeNamespace is.
func (c Config) expiryNamespace() string { return c.Namespace + "-expiry" }

// due is when an object expires.
func (e *expiring) due(n int) time.Time {
	at := e.first.Add(time.Duration(float64(e.Duration) * float64(n) / float64(e.Objects)))
	if e.jobs {
		at = at.Truncate(time.Second)
	}
	return at
}

// create makes an object. A Job finished when the run began.
func (e *expiring) create(ctx context.Context, c client, n int) (int64, error) {
	if !e.jobs {
		body := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"annotations":{"lifecycle.exeunt.dev/expires-at":%q}},"data":{"text":%q}}`,
			objectName(n), e.due(n).UTC().Format(time.RFC3339Nano), data(n, e.Size))
		return c.discard(ctx, http.MethodPost, e.path, "", writeHeader, &payload{pieces: [5]string{body}})
	}
	body := fmt.Sprintf(`{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":%q},"spec":{"ttlSecondsAfterFinished":%d,"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"a","image":"a"}]}}}}`,
		objectName(n), int(e.due(n).Sub(e.begin)/time.Second))
	if n, err := c.discard(ctx, http.MethodPost, e.path, "", writeHeader, &payload{pieces: [5]string{body}}); err != nil {
		return n, err
	}
	at := e.begin.UTC().Format(time.RFC3339)
	status := fmt.Sprintf(`{"status":{"startTime":%q,"completionTime":%q,"succeeded":1,"conditions":[{"type":"SuccessCriteriaMet","status":"True","lastTransitionTime":%q},{"type":"Complete","status":"True","lastTransitionTime":%q}]}}`, at, at, at, at)
	return c.discard(ctx, http.MethodPatch, e.path+"/"+objectName(n)+"/status", "", mergeHeader, &payload{pieces: [5]string{status}})
}

// measure lets the other clients write before the first expiry and from then on, and follows the objects.
func (e *expiring) measure(ctx context.Context, others *session, before time.Time) (Result, error) {
	version, err := e.version(ctx)
	if err != nil {
		return Result{}, err
	}
	watchPool, err := openPool(e.REST, 1)
	if err != nil {
		return Result{}, err
	}
	defer watchPool.close()
	watchCtx, cancel := context.WithDeadline(ctx, e.first.Add(e.Duration+expiryPatience))
	defer cancel()
	query := fmt.Sprintf("watch=1&resourceVersion=%s&timeoutSeconds=%d", version, int((e.Duration + expiryPatience + time.Hour).Seconds()))
	answer, err := watchPool.client(0).send(watchCtx, http.MethodGet, e.path, query, plainHeader, nil)
	if err != nil {
		return Result{}, fmt.Errorf("open watch: %w", err)
	}
	defer answer.Body.Close()
	events, followed := bufio.NewReaderSize(answer.Body, 64<<10), make(chan error, 1)
	go func() { followed <- e.follow(events) }()

	result := Result{Workload: "expiry"}
	add := func(m meter, name string, t *tally) error {
		measure, err := m.stop(name, t)
		result.Measures = append(result.Measures, measure)
		return err
	}
	time.Sleep(time.Until(before))
	m, err := startMeter(e.PID)
	if err != nil {
		return Result{}, err
	}
	if err := add(m, "writes before", newRace(others).write(ctx)); err != nil {
		return Result{}, err
	}
	time.Sleep(time.Until(e.first))
	if m, err = startMeter(e.PID); err != nil {
		return Result{}, err
	}
	if err := add(m, "writes meanwhile", newRace(others).write(ctx)); err != nil {
		return Result{}, err
	}
	quiet, meanwhile := &result.Measures[0], &result.Measures[1]
	if quiet.Latency.P99 > 0 {
		meanwhile.Yardstick = &Ratio{Name: quiet.Name, Times: float64(meanwhile.Latency.P50) / float64(quiet.Latency.P50)}
	}
	if err := <-followed; err != nil {
		return result, fmt.Errorf("%d of %d objects are gone: %w", e.gone.ops, e.Objects, err)
	}
	if e.jobs {
		if err := add(m, "expiry, deleted", &e.asked); err != nil {
			return Result{}, err
		}
	}
	return result, add(m, "expiry, gone", &e.gone)
}

// follow reads events until all objects are gone.
func (e *expiring) follow(from *bufio.Reader) error {
	for e.gone.ops < int64(e.Objects) {
		line, err := from.ReadBytes('\n')
		if err != nil {
			return err
		}
		at, gone := time.Now(), bytes.HasPrefix(line, []byte(`{"type":"DELETED"`))
		if !gone && !bytes.Contains(line, []byte(`"deletionTimestamp"`)) && !bytes.HasPrefix(line, []byte(`{"type":"ERROR"`)) {
			continue
		}
		var event struct {
			Object namedObject `json:"object"`
		}
		if err := json.Unmarshal(line, &event); err != nil {
			return err
		}
		var n int
		if _, err := fmt.Sscanf(event.Object.Metadata.Name, namePrefix+"%d", &n); err != nil {
			return fmt.Errorf("the watch sent %.300s", line)
		}
		late := at.Sub(e.due(n))
		if late < 0 {
			return fmt.Errorf("%s is deleted %s before its time", event.Object.Metadata.Name, -late)
		}
		if !e.seen[n] {
			e.seen[n] = true
			e.asked.count(late, int64(len(line)), nil)
		}
		if gone {
			e.gone.count(late, int64(len(line)), nil)
		}
	}
	return nil
}
