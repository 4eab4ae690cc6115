package v1

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of the types.
var GroupVersion = schema.GroupVersion{Group: "access.exeunt.dev", Version: "v1"}

// Users is the resource of User.
var Users = GroupVersion.WithResource("users")

// TokenPrefix begins every token of a User, so that a token that leaks is recognised.
const TokenPrefix = "exeunt_"

// User is a client that authenticates by its tokens. Its name is the user name. Deleting
// it revokes its tokens and the certificates that were issued to it.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type User struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec UserSpec `json:"spec"`
}

// UserSpec says what a User is.
type UserSpec struct {
	// Groups are the groups of the user, besides system:authenticated.
	Groups []string `json:"groups,omitempty"`
	Tokens []Token  `json:"tokens,omitempty"`
}

// Token is a bearer token, of which only the hash is stored.
type Token struct {
	Name    string       `json:"name"`
	SHA256  string       `json:"sha256"`
	Expires *metav1.Time `json:"expires,omitempty"` // nil means never
}

// UserList is a list of Users.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type UserList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []User `json:"items"`
}

// NewToken returns a new token with 256 random bits.
func NewToken() string {
	var secret [32]byte
	if _, err := rand.Read(secret[:]); err != nil {
		panic(err) // the system has no randomness
	}
	return TokenPrefix + base64.RawURLEncoding.EncodeToString(secret[:])
}

// Hash returns the hash of a token as it is stored. One round is enough: a token is not
// a password, its randomness cannot be guessed.
func Hash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}
