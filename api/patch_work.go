package api

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/object"
)

const (
	// maxOperations is how many operations a JSON patch may have, as in
	// Kubernetes.
	maxOperations = 10000
	// maxPatchWork bounds what a patch may cost, in units of some 15 ns. A library
	// applies it in one go, which the end of the request does not interrupt, so it
	// is bounded before: two seconds of one processor.
	maxPatchWork = 128 << 20
	// mergeCost is what a level of a merge patch costs for each byte: the library
	// copies, decodes and encodes all that is below it.
	mergeCost = 2
	// searchCost is what it costs to look at one element of a list by its key.
	searchCost = 4
)

// limitCopies bounds how much the copy operations of one JSON patch may add, for
// every patch of this process: the library has no other way.
var limitCopies = sync.OnceFunc(func() { jsonpatch.AccumulatedCopySizeLimit = MaxBody })

// patchWork is what it costs to apply a patch to an object: so much for each
// byte of the object, and of what the patch adds, and so much for each element of
// their lists.
type patchWork struct {
	perByte, perElement int64
	bytes, elements     int64 // that the patch adds
}

type patchWorkKey struct{}

// measurePatch puts the work of a patch into the request's context, for update.
// It refuses a JSON patch of too many operations, or one that could nest the
// object too deeply.
func measurePatch(req *http.Request, body []byte) (*http.Request, error) {
	mediaType, _, _ := strings.Cut(req.Header.Get("Content-Type"), ";")
	shape := object.Measure(body)
	var work patchWork
	switch types.PatchType(mediaType) {
	case types.JSONPatchType:
		var err error
		if work, err = measureOperations(body); err != nil {
			return nil, err
		}
		work.elements = int64(shape.Elements)
	case types.MergePatchType:
		work = patchWork{perByte: mergeCost * int64(shape.Depth), bytes: int64(len(body))}
	case types.StrategicMergePatchType:
		// Each element of a list is looked for among all that are there.
		work.perElement = searchCost * int64(shape.Elements)
	}
	return req.WithContext(context.WithValue(req.Context(), patchWorkKey{}, work)), nil
}

// measureOperations is the work of a JSON patch. Each operation may move all
// elements of a list, and a test reads the value that it compares.
//
// A copy or move to a deeper place makes the document deeper, and many of them as
// deep as they like: together they may add object.MaxDepth levels. What cannot be
// read is left to the library to refuse.
func measureOperations(body []byte) (work patchWork, err error) {
	var operations []map[string]json.RawMessage // not a struct: names are exact, as for the library
	if err := json.Unmarshal(body, &operations); err != nil {
		return work, nil
	}
	if n := len(operations); n > maxOperations {
		return work, object.Errorf(object.TooLarge, "The allowed maximum operations in a JSON patch is %d, got %d", maxOperations, n)
	}
	added := 0
	for _, o := range operations {
		to := strings.Count(text(o["path"]), "/")
		if to > object.MaxDepth {
			return work, object.TooDeep()
		}
		if from := o["from"]; from != nil {
			added += max(0, to-strings.Count(text(from), "/"))
		}
		if text(o["op"]) == "test" {
			work.perByte++
		}
		work.bytes = max(work.bytes, int64(len(o["value"])))
	}
	if added > object.MaxDepth {
		return work, object.TooDeep()
	}
	work.perElement = int64(len(operations))
	return work, nil
}

// text is what a JSON string says; empty for anything else.
func text(value json.RawMessage) (s string) {
	_ = json.Unmarshal(value, &s)
	return s
}

// checkPatchWork refuses a patch that would take long on an object.
func checkPatchWork(ctx context.Context, body []byte) error {
	work, ok := ctx.Value(patchWorkKey{}).(patchWork)
	if !ok {
		return nil
	}
	cost := work.perByte * (work.bytes + int64(len(body)))
	if work.perElement > 0 {
		cost += work.perElement * (work.elements + int64(object.Measure(body).Elements))
	}
	if cost > maxPatchWork {
		return object.Errorf(object.TooLarge, "the patch has too many steps for an object of %d bytes: send it in parts, or send the whole object", len(body))
	}
	return nil
}
