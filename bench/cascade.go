package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// chainLength is the number of levels of the chain in RunCascade.
const chainLength = 200

// cascadePatience bounds the wait for one cascade: a controller manager with its default rate
// limit deletes 20 objects a second.
const cascadePatience = 30 * time.Minute

// RunCascade makes an owner with dependents and deletes it, with each of the three policies, and
// a chain of objects, each owned by the one before, in the foreground. Each dependent counts as an
// operation. The clock runs from the request until the last dependent is gone, or until the owner
// is, where the policy is orphan. A server without a collector never ends.
func RunCascade(ctx context.Context, config Config) (Result, error) {
	text()
	s, err := open(ctx, config)
	if err != nil {
		return Result{}, err
	}
	defer s.pool.close()
	s.path = collectionPath(s.cascadeNamespace())
	if err := ensureNamespace(ctx, s.pool.client(0), s.cascadeNamespace(), ""); err != nil {
		return Result{}, err
	}
	result := Result{Workload: "cascade"}
	for _, policy := range []string{"Background", "Foreground", "Orphan"} {
		m, err := s.cascade(ctx, policy)
		if err != nil {
			return result, fmt.Errorf("cascade with the policy %s: %w", policy, err)
		}
		result.Measures = append(result.Measures, m)
	}
	m, err := s.chain(ctx)
	if err != nil {
		return result, fmt.Errorf("chain: %w", err)
	}
	result.Measures = append(result.Measures, m)
	return result, ctx.Err()
}

// cascadeNamespace is apart from the objects of the other workloads, and its deleted objects go
// to the archive, as those of users do.
func (c Config) cascadeNamespace() string { return c.Namespace + "-cascade" }

// cascade deletes an owner with s.Objects dependents.
func (s *session) cascade(ctx context.Context, policy string) (Measure, error) {
	owner, err := s.owned(ctx, s.pool.client(0), "owner", "", 0)
	if err != nil {
		return Measure{}, err
	}
	t := s.onEach(ctx, func(c client, n int) (int64, error) {
		_, err := s.owned(ctx, c, objectName(n), reference("owner", owner), n)
		return 0, err
	})
	if t.errors > 0 {
		return Measure{}, fmt.Errorf("make dependents: %w", t.firstErr)
	}
	m, err := s.timeCascade(ctx, "cascade, "+policy, policy, "owner", s.Objects)
	if err != nil || policy != "Orphan" {
		return m, err
	}
	_, err = s.pool.client(0).discard(ctx, http.MethodDelete, s.path, "labelSelector=app%3Dbench", plainHeader, nil)
	return m, err
}

// chain deletes the first of a chain of objects.
func (s *session) chain(ctx context.Context) (Measure, error) {
	ref := ""
	for i := range chainLength {
		uid, err := s.owned(ctx, s.pool.client(0), objectName(i), ref, i)
		if err != nil {
			return Measure{}, err
		}
		ref = reference(objectName(i), uid)
	}
	return s.timeCascade(ctx, fmt.Sprintf("chain of %d, Foreground", chainLength), "Foreground", objectName(0), chainLength)
}

// timeCascade deletes an object and waits for the end of its cascade.
func (s *session) timeCascade(ctx context.Context, name, policy, object string, size int) (Measure, error) {
	c := s.pool.client(0)
	m, err := startMeter(s.PID)
	if err != nil {
		return Measure{}, err
	}
	if _, err := c.discard(ctx, http.MethodDelete, s.path+"/"+object, "propagationPolicy="+policy, plainHeader, nil); err != nil {
		return Measure{}, err
	}
	gone := s.noneLeft
	if policy == "Orphan" {
		gone = func(ctx context.Context) (bool, error) {
			_, err := c.get(ctx, s.path+"/"+object, "")
			if hasCode(err, http.StatusNotFound) {
				return true, nil
			}
			return false, err
		}
	}
	if err := awaitTrue(ctx, gone); err != nil {
		return Measure{}, err
	}
	var t tally
	t.ops = int64(size)
	t.latency.add(time.Since(m.begin))
	return m.stop(name, &t)
}

// noneLeft reports whether all objects of the cascade are gone.
func (s *session) noneLeft(ctx context.Context) (bool, error) {
	data, err := s.pool.client(0).get(ctx, s.path, "limit=1&labelSelector=app%3Dbench")
	if err != nil {
		return false, err
	}
	var list struct {
		Items []json.RawMessage `json:"items"`
	}
	err = json.Unmarshal(data, &list)
	return len(list.Items) == 0, err
}

// awaitTrue asks at intervals that are short beside the time that has passed already.
func awaitTrue(ctx context.Context, done func(context.Context) (bool, error)) error {
	begin := time.Now()
	for {
		ended, err := done(ctx)
		if ended || err != nil {
			return err
		}
		passed := time.Since(begin)
		if passed > cascadePatience {
			return fmt.Errorf("it did not end within %v: does a collector run?", cascadePatience)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(min(max(passed/50, time.Millisecond), time.Second)):
		}
	}
}

// reference is the owner reference to a ConfigMap, as the beginning of further metadata.
func reference(name, uid string) string {
	return fmt.Sprintf(`","ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":%q,"uid":%q,"blockOwnerDeletion":true}],"labels":{"app":"bench"}},"data":{"text":"`, name, uid)
}

// owned creates an object and returns its UID. The reference may be empty.
func (s *session) owned(ctx context.Context, c client, name, ref string, n int) (uid string, err error) {
	if ref == "" {
		ref = bodyData
	}
	body := &payload{pieces: [5]string{bodyHead, name, ref, data(n, s.Size), bodyTail}}
	answer, err := c.read(ctx, http.MethodPost, s.path, "", writeHeader, body)
	if err != nil {
		return "", err
	}
	var created struct {
		Metadata struct {
			UID string `json:"uid"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(answer, &created); err != nil {
		return "", fmt.Errorf("create %s: %w", name, err)
	}
	return created.Metadata.UID, nil
}
