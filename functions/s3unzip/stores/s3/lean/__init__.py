"""HEAD and LIST with little CPU. A verify consists of them."""
