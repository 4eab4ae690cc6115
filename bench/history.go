package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// historyVersions is how many versions each object gets.
const historyVersions = 20

// RunHistory gives every object 20 versions, and reads the past: an object and all objects at the version in the middle,
// and the versions of an object. Then it reverts the namespace to that version. It is not a part of "all". A server moves
// versions from its log to its history after five minutes; a run with --keep, and another one later, measures both.
func RunHistory(ctx context.Context, config Config) (Result, error) {
	s, err := openSeeded(ctx, config)
	if err != nil {
		return Result{}, err
	}
	defer s.pool.close()
	result := Result{Workload: "history"}
	var middle string
	for i := range historyVersions {
		body := &payload{pieces: [5]string{fmt.Sprintf(`{"data":{"stamp":%q}}`, newMark())}}
		m, err := startMeter(s.PID)
		if err != nil {
			return Result{}, err
		}
		t := s.onEach(ctx, func(c client, n int) (int64, error) {
			return c.discard(ctx, http.MethodPatch, s.path+"/"+objectName(n), "", mergeHeader, body)
		})
		measure, err := m.stop("patch, last version", t)
		if err != nil {
			return Result{}, err
		}
		if i == historyVersions-1 {
			result.Measures = append(result.Measures, measure)
		}
		if i == historyVersions/2 {
			if middle, err = s.version(ctx); err != nil {
				return Result{}, err
			}
		}
	}
	then := "/at/" + middle + s.path
	c, object := s.pool.client(0), 0
	next := func() string {
		object = (object + 7919) % s.Objects
		return "/" + objectName(object)
	}
	for _, variant := range []struct{ name, path string }{{"get", s.path}, {"get at a version", then}, {"versions", "/at/versions" + s.path}, {"list", s.path}, {"list at a version", then}} {
		single := variant.name[0] != 'l'
		measure, err := s.inTurn(ctx, variant.name, func() (int64, error) {
			path := variant.path
			if single {
				path += next()
			}
			return c.discard(ctx, http.MethodGet, path, "", plainHeader, nil)
		})
		if err != nil {
			return Result{}, err
		}
		result.Measures = append(result.Measures, measure)
	}
	measure, err := s.revert(ctx, middle)
	result.Measures = append(result.Measures, measure)
	return result, err
}

// version is the newest version of the server.
func (s *session) version(ctx context.Context) (string, error) {
	var list namedObject
	answer, err := s.pool.client(0).get(ctx, s.path, "limit=1")
	if err == nil {
		err = json.Unmarshal(answer, &list)
	}
	return list.Metadata.ResourceVersion, err
}

type namedObject struct {
	Metadata struct {
		Name            string `json:"name"`
		ResourceVersion string `json:"resourceVersion"`
	} `json:"metadata"`
	Status struct {
		Phase   string `json:"phase"`
		Changed int    `json:"changed"`
	} `json:"status"`
}

// revert times a revert of the namespace.
func (s *session) revert(ctx context.Context, to string) (Measure, error) {
	const restores = "/apis/lifecycle.exeunt.dev/v1/restores"
	body := fmt.Sprintf(`{"apiVersion":"lifecycle.exeunt.dev/v1","kind":"Restore","spec":{"object":{"kind":"namespace","name":%q},"to":%q}}`, s.Namespace, to)
	m, err := startMeter(s.PID)
	if err != nil {
		return Measure{}, err
	}
	begin, made := time.Now(), namedObject{}
	answer, err := s.pool.client(0).read(ctx, http.MethodPost, restores, "", writeHeader, &payload{pieces: [5]string{body}})
	for err == nil {
		if err = json.Unmarshal(answer, &made); err != nil || made.Status.Phase == "Complete" {
			break
		}
		if made.Status.Phase == "Incomplete" {
			err = fmt.Errorf("the revert is incomplete: %s", answer[:min(len(answer), 2000)])
			break
		}
		answer, err = s.pool.client(0).get(ctx, restores+"/"+made.Metadata.Name, "")
	}
	var t tally
	t.count(time.Since(begin), int64(len(answer)), err)
	measure, stopErr := m.stop(fmt.Sprintf("revert, %d objects", made.Status.Changed), &t)
	if err == nil {
		err = stopErr
	}
	return measure, err
}
