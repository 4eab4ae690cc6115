// Package bodycost refuses bodies of requests that would cost far more than their size suggests,
// before they are decoded or applied ([decision 13]: documents are bounded).
//
// [decision 13]: ../../docs/decisions/0013-documents-are-bounded.md
package bodycost

import (
	"encoding/json"
	"strings"

	"go.yaml.in/yaml/v2"
	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/object"
)

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
