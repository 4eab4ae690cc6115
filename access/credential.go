package access

import (
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	v1 "github.com/exeunt/exeunt/access/v1"
)

// Credential returns what UserByCredential knows a User's token by, and when the token
// ends (zero: never); "" if it is not a User's.
func (d *Door) Credential(token string) (string, time.Time) {
	hash := v1.Hash(token)
	found, expires := d.directory.UserByToken(hash)
	if found == nil {
		return "", time.Time{}
	}
	return hash, expires
}

// UserByCredential returns the User as it is now, or false if the User or its token is
// gone.
func (d *Door) UserByCredential(credential string) (user.Info, bool) {
	found, expires := d.directory.UserByToken(credential)
	if found == nil || !expires.IsZero() && time.Now().After(expires) {
		return nil, false
	}
	groups := append(append([]string{}, found.Spec.Groups...), user.AllAuthenticated)
	return &user.DefaultInfo{Name: found.Name, UID: string(found.UID), Groups: groups}, true
}
