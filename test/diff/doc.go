// Package diff sends the same requests, watches and kubectl commands to our server and to a
// real kube-apiserver, and compares the answers.
//
// The scripts in testdata are the table. A script is a list of steps:
//
//	== get with a wrong version
//	GET /api/v1/namespaces/diff/configmaps/a?resourceVersion=x
//	As: ann
//
// The first line after the name is a request, or "$ kubectl ...". Header lines may follow;
// after an empty line comes the body (or standard input), in YAML, which is sent as JSON. The
// headers As, As-Group, Raw, Save, Until, Only and Any are for the runner; all others are sent:
//
//	As: NAME         impersonates a user; As-Group: NAME, repeated, his groups
//	Raw: yes         sends the body as it is written
//	Save: NAME PATH  keeps a field of the answer; ${NAME} in later steps is its value
//	Until: PATH=VALUE  repeats the step until the answer has this value ("code=404")
//	Only: PATH       compares this field only
//	Any: yes         runs the step and does not compare
//
// Times, uids, versions and generated names are masked (mask_test.go). Differences that are meant
// stand in meant.txt, each with its reason; defects and what is not decided in open.txt, which every
// run counts. An entry that no longer applies fails the test.
//
// The kube-apiserver, its etcd and its kube-controller-manager take many minutes to build, so
// the comparison runs separately: make long RUN=diff.
package diff
