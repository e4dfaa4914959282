// Package lease decides who may read and write a page of KV.
package lease
