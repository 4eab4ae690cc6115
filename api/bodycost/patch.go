// Package bodycost refuses bodies of requests that would cost far more than their size suggests,
// before they are decoded or applied ([decision 13]: documents are bounded).
//
// [decision 13]: ../../docs/decisions/0013-documents-are-bounded.md
package bodycost

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"

	"go.yaml.in/yaml/v2"
	"google.golang.org/protobuf/encoding/protowire"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/object"
)

const (
	// maxOperations is how many operations a JSON patch may have, as in
	// Kubernetes.
	maxOperations = 10000
	// maxPatchWork limits the cost of a patch, in units of about 15 ns: two seconds
	// of one processor. It is checked before the patch is applied, because the
	// library cannot be interrupted when the request ends.
	maxPatchWork = 128 << 20
	// mergeCost is the cost of one level of a merge patch per byte: the library
	// copies, decodes and encodes everything below that level.
	mergeCost = 2
	// searchCost is the cost of comparing one element of a list by its key.
	searchCost = 4
)

// LimitCopies limits the bytes that the copy operations of one JSON patch add. The
// limit is global to the process: the library offers no other way.
var LimitCopies = sync.OnceFunc(func() { jsonpatch.AccumulatedCopySizeLimit = MaxBody })

// patchWork is the cost of applying a patch: perByte for each byte of the object
// and of the patch, and perElement for each element of their lists.
type patchWork struct {
	perByte, perElement int64
	bytes, elements     int64 // of the patch itself
}

type patchKey struct{}

// MeasurePatch puts the cost of a patch into the request's context, for update. It
// refuses a JSON patch that has too many operations or could nest the object too
// deeply.
func MeasurePatch(req *http.Request, body []byte) (*http.Request, error) {
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
		// The library searches each element among all elements of the stored list.
		work.perElement = searchCost * int64(shape.Elements)
	}
	return req.WithContext(context.WithValue(req.Context(), patchKey{}, work)), nil
}

// measureOperations returns the cost of a JSON patch. Each operation may move all
// elements of a list, and a test reads the value that it compares.
//
// A copy or a move to a deeper path makes the document deeper. All operations
// together may add object.MaxDepth levels. A body that cannot be parsed passes:
// the library refuses it.
func measureOperations(body []byte) (work patchWork, err error) {
	var operations []map[string]json.RawMessage // not a struct: keys are case-sensitive, as in the library
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

// text returns the value of a JSON string, and "" for any other value.
func text(value json.RawMessage) (s string) {
	_ = json.Unmarshal(value, &s)
	return s
}

// CheckPatch refuses a patch that costs too much on the object with this body.
func CheckPatch(ctx context.Context, body []byte) error {
	work, ok := ctx.Value(patchKey{}).(patchWork)
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

// Check refuses a body that costs a decoder far more than its size
// suggests: one that nests deeper than object.MaxDepth, or YAML whose aliases
// expand beyond maxExpanded. It passes bodies with other errors: the decoder
// reports those.
func Check(contentType string, body []byte) error {
	mediaType, _, _ := strings.Cut(contentType, ";")
	switch strings.TrimSpace(mediaType) {
	case runtime.ContentTypeYAML, string(types.ApplyYAMLPatchType):
		return checkYAML(body)
	case runtime.ContentTypeProtobuf:
		return checkProtobuf(body)
	}
	return object.CheckDepth(body)
}

// MaxBody is the largest request body that the server reads, in bytes.
const MaxBody = 3 << 20

// maxExpanded limits the bytes of all texts of a YAML document after its aliases
// are expanded. Without aliases the texts are smaller than the body.
const maxExpanded = 2 * MaxBody

// checkYAML decodes YAML that is not JSON; the library then decodes it again.
// That is affordable, since most clients, kubectl apply included, send JSON.
func checkYAML(body []byte) error {
	if json.Valid(body) {
		return object.CheckDepth(body)
	}
	var value any
	if err := yaml.Unmarshal(body, &value); err != nil {
		return nil
	}
	left := maxExpanded
	return checkValue(value, 0, &left)
}

func checkValue(value any, depth int, left *int) error {
	if depth > object.MaxDepth {
		return object.TooDeep()
	}
	if text, ok := value.(string); ok {
		*left -= len(text)
	}
	if *left--; *left < 0 {
		return object.Errorf(object.TooLarge, "the document has more than %d bytes with its aliases expanded", maxExpanded)
	}
	switch value := value.(type) {
	case []any:
		for _, element := range value {
			if err := checkValue(element, depth+1, left); err != nil {
				return err
			}
		}
	case map[any]any:
		for key, element := range value {
			if err := checkValue(key, depth+1, left); err != nil {
				return err
			}
			if err := checkValue(element, depth+1, left); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkProtobuf treats each field that parses as a message as a message, and
// each that starts like JSON also as JSON: the wire format does not distinguish
// them from texts and bytes. Real texts do not parse as hundreds of nested
// messages.
func checkProtobuf(body []byte) error {
	const magic = 4 // length in bytes of the prefix before the message
	if len(body) > magic && deepMessage(body[magic:], 0) {
		return object.TooDeep()
	}
	return nil
}

func deepMessage(message []byte, depth int) bool {
	if depth > object.MaxDepth {
		return true
	}
	if len(message) > 0 && message[0] == '{' && object.CheckDepth(message) != nil && json.Valid(message) {
		return true
	}
	for len(message) > 0 {
		number, wireType, n := protowire.ConsumeTag(message)
		if n < 0 {
			return false
		}
		message = message[n:]
		if wireType == protowire.BytesType {
			field, _ := protowire.ConsumeBytes(message)
			if deepMessage(field, depth+1) {
				return true
			}
		}
		if n = protowire.ConsumeFieldValue(number, wireType, message); n < 0 {
			return false
		}
		message = message[n:]
	}
	return false
}
