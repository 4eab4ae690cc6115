package object

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// versionHead begins the field that names the version a body was written in. It is the
// first field after the metadata. Bodies whose kind never changed its storage version do
// not have it.
const versionHead = `,"apiVersion":"`

// WithVersion adds the name of the version that a body is written in: "v1". The body has
// none yet.
func WithVersion(body []byte, version string) ([]byte, error) {
	metadata, rest, err := Split(body)
	if err != nil {
		return nil, err
	}
	quoted, err := json.Marshal(version)
	if err != nil {
		return nil, fmt.Errorf("encode version %q: %w", version, err)
	}
	out := make([]byte, 0, len(body)+len(versionHead)+len(quoted))
	out = append(out, head[:len(head)-1]...)
	out = append(out, metadata...)
	out = append(out, versionHead[:len(versionHead)-1]...)
	out = append(out, quoted...)
	return append(out, rest...), nil
}

// MayHaveVersion reports whether CutVersion may find a version. It is much cheaper.
func MayHaveVersion(body []byte) bool { return bytes.Contains(body, []byte("}"+versionHead)) }

// CutVersion returns the name of the version that a body was written in, or "", and the
// body without it.
func CutVersion(body []byte) (version string, unmarked []byte, err error) {
	metadata, rest, err := Split(body)
	if err != nil {
		return "", nil, err
	}
	name, found := bytes.CutPrefix(rest, []byte(versionHead))
	if !found {
		return "", body, nil
	}
	end := bytes.IndexByte(name, '"') // names of versions are DNS labels, without escapes
	if end < 0 {
		return "", nil, fmt.Errorf("the version of the body does not end")
	}
	out := make([]byte, 0, len(body))
	out = append(out, head[:len(head)-1]...)
	out = append(out, metadata...)
	return string(name[:end]), append(out, name[end+1:]...), nil
}
