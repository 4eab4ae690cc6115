package api

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/exeunt/exeunt/object"
)

// position is the content of a continue token: the list continues after this
// object, in the snapshot of this revision.
type position struct {
	Version   string `json:"v"`
	Revision  int64  `json:"rv"`
	Namespace string `json:"ns,omitempty"`
	Name      string `json:"name"`
}

const positionVersion = "exeunt/v1"

func (p position) String() string {
	p.Version = positionVersion
	data, _ := json.Marshal(p) // strings and an integer: cannot fail
	return base64.RawURLEncoding.EncodeToString(data)
}

// parsePosition reads a continue token. A client may send a forged token. That
// is harmless: a token contains only a revision and a key.
func parsePosition(token string) (position, error) {
	var p position
	bad := object.BadRequestf("continue key is not valid: it must be a token that an earlier page of this list returned")
	data, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(token, "="))
	if err != nil || len(data) > 2048 {
		return p, bad
	}
	if err := json.Unmarshal(data, &p); err != nil {
		return p, bad
	}
	if p.Version != positionVersion || p.Revision <= 0 || p.Name == "" || strings.ContainsRune(p.Namespace+p.Name, 0) {
		return p, bad
	}
	return p, nil
}

func tooLargeMessage(asked, current int64) string {
	return fmt.Sprintf("Too large resource version: %d, current: %d", asked, current)
}
