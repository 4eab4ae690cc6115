package kind

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apiserver/pkg/authentication/user"
)

// UserInfo is a user as the API shows and the archive stores it.
func UserInfo(u user.Info) authenticationv1.UserInfo {
	info := authenticationv1.UserInfo{Username: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups()}
	for k, v := range u.GetExtra() {
		if info.Extra == nil {
			info.Extra = map[string]authenticationv1.ExtraValue{}
		}
		info.Extra[k] = v
	}
	return info
}

// UserOf is the user with the fields of a UserInfo, or of a SubjectAccessReview.
func UserOf[Value ~[]string](name, uid string, groups []string, extra map[string]Value) user.Info {
	info := &user.DefaultInfo{Name: name, UID: uid, Groups: groups}
	for k, v := range extra {
		if info.Extra == nil {
			info.Extra = map[string][]string{}
		}
		info.Extra[k] = v
	}
	return info
}
